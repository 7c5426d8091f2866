"""One file, whole or not at all, whatever fails and whenever the process is killed.

The bytes go to a temporary file beside the target, are forced to the disk, and take the target's
place in one rename: at every instant the target is the old file or the new one. A kill can leave
the temporary behind; its name says which process of which machine wrote it, and the next save into
that folder removes those whose writer is gone.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

__all__ = ["force_to_disk", "put", "scratch", "sweep", "write_atomically"]

# .cynosure-<machine>-<process>-<random>.tmp: short, whatever the target is called
_SCRATCH = re.compile(r"\.cynosure-([0-9a-f]{8})-(\d{1,10})-([0-9a-f]{16})\.tmp")
_ABANDONED = 24 * 3600.0  # seconds; nobody writes one file for a day
_IN_USE: set[str] = set()  # those this process is writing now


def write_atomically(path: str | os.PathLike[str], write: Any) -> Path:
    """Call write(stream) on a temporary file beside `path`, then put it in place in one step.

    Interrupted or failed, nothing is left at `path` that was not there before; if this returns, the
    new file is there. A symbolic link stays one, and the file it names is replaced.
    """
    target = Path(os.path.realpath(path))
    target.parent.mkdir(parents=True, exist_ok=True)
    sweep(target.parent)
    put(target, write)
    return Path(path)


def put(target: Path, write: Any) -> None:
    """`write_atomically` into a folder that is there, whose leftovers somebody else removes."""
    with scratch(target.parent) as name:
        try:
            handle = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY, 0o666)
            with os.fdopen(handle, "wb") as stream:
                write(stream)
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(name, target)
        except OSError as error:  # a full disk: say of which file, by the name people know
            if error.errno and error.filename in (None, str(name), name):
                error.filename, error.filename2 = str(target), None
            raise
    force_to_disk(target.parent)


_BINARY = getattr(os, "O_BINARY", 0)  # Windows would translate line ends


@contextmanager
def scratch(folder: Path) -> Iterator[Path]:
    """`with scratch(folder) as name`: a name in `folder` for what is not finished yet.

    What is still there at the end, after a failure, is removed; a file, or a folder with all below.
    """
    path = folder / f".cynosure-{_machine()}-{os.getpid()}-{secrets.token_hex(8)}.tmp"
    _IN_USE.add(path.name)
    try:
        yield path
    finally:
        _IN_USE.discard(path.name)
        with suppress(OSError):  # a failure that brought us here is the one to report
            _remove(path)


def sweep(folder: Path) -> None:
    """Remove the temporaries in `folder` whose writer is gone: killed, or silent for a day."""
    with suppress(OSError):
        for path in list(_abandoned(folder)):
            _remove(path)


def _abandoned(folder: Path) -> Iterator[Path]:
    with os.scandir(folder) as entries:
        for entry in entries:
            match = _SCRATCH.fullmatch(entry.name)
            if match is None or entry.name in _IN_USE or entry.is_symlink():
                continue
            here = match[1] == _machine()
            silent = time.time() - entry.stat(follow_symlinks=False).st_mtime > _ABANDONED
            if silent or (here and not _alive(int(match[2]))):
                yield Path(entry.path)


def _alive(process: int) -> bool:
    """Whether that process runs here; this one has no temporary outside `_IN_USE`."""
    if process == os.getpid():
        return False
    if os.name != "posix":  # there, os.kill would end it: wait until it has been silent for long
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


def _machine() -> str:
    """A name of this machine, since process numbers are each machine's own."""
    return hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]


def _remove(path: Path) -> None:
    """Remove a temporary: a file, or a folder with all that is below it."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if stat.S_ISDIR(mode):
        shutil.rmtree(path)
    else:
        os.unlink(path)


def force_to_disk(path: Path) -> None:
    """Force a folder's names to the disk where the system can; the names are right either way."""
    with suppress(OSError):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
