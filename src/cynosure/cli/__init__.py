"""The command line. Data goes to stdout, everything else to stderr.

Exit codes: 0 done, 1 failed (a theorem that applies does not hold, a run overflowed), 2 wrong usage
or input, 130 interrupted. Nothing heavy is imported before a command runs, so `--help` is quick.
"""

from __future__ import annotations

import errno
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr
from io import TextIOWrapper
from itertools import islice
from typing import Any

import typer

from .._progress import silent
from .app import app
from .environment import missing_extra
from .terminal import Closed, Unfailing, field, has_every_character

__all__ = ["app", "main"]

# What the command or its input can mend: a name, a place, a disk that is full.
_MENDABLE = {
    *(errno.ENOENT, errno.EEXIST, errno.EISDIR, errno.ENOTDIR, errno.EACCES, errno.EPERM),
    *(errno.ENAMETOOLONG, errno.ELOOP, errno.EROFS, errno.ENOSPC, errno.EFBIG, errno.ENOTEMPTY),
    *(errno.EDQUOT, errno.EINVAL, errno.ETXTBSY, errno.EBUSY, errno.EBADF),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    with _streams(), silent():  # commands have bars of their own
        return _main(list(sys.argv[1:] if argv is None else argv))


def _main(args: list[str]) -> int:
    typed = shlex.join(["cynosure", *args])
    try:
        code = app(args=_common_first(args), prog_name="cynosure", standalone_mode=False, obj=typed)
        sys.stdout.flush()
        written = any(word.partition("=")[0] == "--out" for word in args)
        if isinstance(sys.stdout, Closed) and sys.stdout.lost and not written:
            raise OSError(errno.EBADF, "standard output is closed, so the result is lost")
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    except (BrokenPipeError, SystemExit):  # typer exits when the reader, `head` say, has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno())  # type: ignore[union-attr]
        code = 0
    except Exception as error:
        if "--debug" in args:
            import traceback

            traceback.print_exc()
        code = _complain(error)
    if code == 130:
        print("cynosure: interrupted", file=sys.stderr)
    return int(code or 0)


@contextmanager
def _streams() -> Iterator[None]:
    """Standard streams that can be used, whatever we were started with.

    One that is closed (`>&-`, a service) is None for Python, and the next file that is opened would
    get its number. Characters that stdout lacks are escaped. stderr may fail without harm.
    """
    closed = [name for name in ("stdin", "stdout", "stderr") if getattr(sys, name) is None]
    with ExitStack() as opened:
        for name in closed:
            mode = "r" if name == "stdin" else "w"
            stream: Any = opened.enter_context(open(os.devnull, mode, encoding="utf-8"))
            setattr(sys, name, Closed(stream) if name == "stdout" else stream)
            opened.callback(setattr, sys, name, None)
        if not has_every_character(sys.stdout) and isinstance(sys.stdout, TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")
        said: Any = Unfailing(sys.stderr)
        with redirect_stderr(said):
            yield


def _common_first(args: list[str]) -> list[str]:
    """-q, -v, --debug and --config may stand anywhere; the parser wants them first."""
    front, rest, words = [], [], iter(args)
    flags = ("-q", "--quiet", "-v", "--verbose", "--debug")
    for word in words:
        if word == "--":
            rest += [word, *words]
        elif word in flags or word.startswith("--config="):
            front.append(word)
        elif word == "--config":
            front += [word, *islice(words, 1)]
        else:
            rest.append(word)
    return front + (rest or ["--help"])


def _complain(error: Exception) -> int:
    """One line and a hint; 2 for what can be mended in the command or its input, 1 for the rest."""
    message, hint, code = str(error), "", 2
    unknown = f" ({type(error).__name__}; --debug shows where)"
    if isinstance(error, typer.TyperException):  # the parser's: a flag or argument is wrong
        context = getattr(error, "ctx", None)
        message = error.format_message()
        hint = f" (see {context.command_path if context else 'cynosure'} --help)"
    elif isinstance(error, ImportError) and (extra := missing_extra(error)):
        message = extra
    elif isinstance(error, OSError) and error.strerror:
        message = error.strerror
        if error.filename is not None:
            message = f"{_short(error.filename)}: {message}"
        if error.errno not in _MENDABLE:
            hint, code = unknown, 1
    elif isinstance(error, MemoryError) and ";" not in message:  # ours say what to do
        message = f"this needs more memory than there is; take fewer tokens or texts ({message})"
    elif isinstance(error, OverflowError):
        message = f"a number is too large for float64 ({message}); scale the tokens down"
    elif not isinstance(error, ValueError | OSError | MemoryError):
        hint, code = unknown, 1
    print(f"cynosure: error: {field(message)}{hint}", file=sys.stderr)
    return code


def _short(name: object) -> str:
    """A file name as a message can bear it."""
    text = os.fsdecode(name) if isinstance(name, str | bytes | os.PathLike) else str(name)
    return text if len(text) <= 120 else f"{text[:100]}... ({len(text)} characters)"
