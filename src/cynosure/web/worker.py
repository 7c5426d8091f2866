"""A worker process: reads a call, makes it, writes its answer, until its input ends.

Frames are a kind, a length and bytes. In: C, a call {"call", "asked"} as JSON; the first frame is
S, the settings. Out: P progress, R the answer, F a file (media type, newline, bytes), V a refusal
(the words of a ValueError), X a failure. Whatever the libraries print goes to stderr: standard
output belongs to the frames.
"""

from __future__ import annotations

import json
import os
import struct
import sys
import warnings
from collections.abc import Callable
from typing import Any, BinaryIO

__all__ = ["HEAD", "main"]

HEAD = struct.Struct(">cI")
_LULL = 0.5  # seconds without a request
_TELLING = ("run", "trace", "heads")  # calls that say how far they are
_REFUSED = (ValueError, TypeError, ArithmeticError, ImportError)


def _read(stream: BinaryIO) -> tuple[bytes, bytes] | None:
    head = stream.read(HEAD.size)
    if len(head) < HEAD.size:
        return None
    kind, size = HEAD.unpack(head)
    body = stream.read(size)
    return (kind, body) if len(body) == size else None


def _write(stream: BinaryIO, kind: bytes, body: bytes) -> None:
    stream.write(HEAD.pack(kind, len(body)) + body)
    stream.flush()


class _Calls(dict[str, Callable[..., Any]]):
    """What this worker can do; a lane for transformers need not load the rest.

    Reading texts takes longer to import than all about tokens: it is loaded when it is asked for,
    or when nobody asks for anything.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__()
        self.models = settings["models"] if settings["lane"] == "maths" else None
        if settings["lane"] == "transformers":
            from .insides import insides

            self.update(insides(settings["transformers"]))
        elif settings["lane"] == "experiments":
            from .runs import runs

            self.update(runs())
        else:
            from .answers import ANSWERS

            self.update(ANSWERS)

    def __missing__(self, name: str) -> Callable[..., Any]:
        if self.models is None:
            raise KeyError(name)
        self.complete()
        return self[name]

    def complete(self) -> None:
        if self.models is not None:
            from .readings import readings

            self.update(readings(self.models))
            self.models = None

    def get_ready(self) -> None:
        """Whatever the first request would wait for: the classifier and its words."""
        if self.models is not None:
            self.complete()
            self["explain"]({"text": "ready", "label": None, "struck": []})


def _quiet(source: BinaryIO, seconds: float) -> bool:
    """Whether nothing is asked for that long; where pipes cannot be watched, at once."""
    import select

    try:
        return not select.select([source], [], [], seconds)[0]
    except (OSError, ValueError):  # Windows watches sockets only
        return True


def _warm(lane: str, calls: dict[str, Callable[..., Any]]) -> None:
    """Compiled kernels are loaded before the first request, not by it."""
    if lane != "maths":
        return
    asked = {"tokens": [[1.0, 0.0], [0.0, 1.0], [0.2, 0.1]], "alpha": 0.5, "A": None}
    more = {"exact": False, "max_layers": 100, "followed": True, "brief": False, "deadline": 5.0}
    calls["limit"](asked | more)


def _confine(memory: int) -> None:
    """No more address space than this, so that one request cannot take the machine's memory."""
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    except (ImportError, ValueError, OSError):  # not on this system, or less is allowed already
        return


def _answer(
    calls: dict[str, Callable[..., Any]], body: bytes, out: BinaryIO
) -> tuple[bytes, bytes]:
    from pydantic_core import from_json, to_json

    from .answers import File

    wanted = from_json(body)  # these two are several times faster than json's
    call, asked = calls[wanted["call"]], wanted["asked"]

    def tell(done: float, what: str = "") -> None:
        said = {"done": round(float(done), 4), "what": str(what)[:300]}
        _write(out, b"P", json.dumps(said).encode())

    try:
        answer = call(asked, tell) if wanted["call"] in _TELLING else call(asked)
        return b"R", to_json(answer, inf_nan_mode="null")
    except File as file:
        return b"F", file.media.encode() + b"\n" + file.data
    except MemoryError:
        return b"V", b"this needs more memory than a request may take; ask for less"
    except _REFUSED as error:
        said = str(error) or type(error).__name__
        return b"V", said.encode("utf-8", "replace")
    except Exception as error:  # no traceback leaves the process
        print(f"{wanted['call']}: {type(error).__name__}: {error}", file=sys.stderr)
        return b"X", type(error).__name__.encode()


def main() -> int:
    source = os.fdopen(os.dup(0), "rb")
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    first = _read(source)
    if first is None:
        return 0
    settings = json.loads(first[1])
    warnings.simplefilter("ignore")
    calls = _Calls(settings)
    _warm(settings["lane"], calls)
    _confine(settings["memory"])
    _write(out, b"P", b'{"done": 0, "what": "ready"}')
    if _quiet(source, _LULL):
        calls.get_ready()
    while (frame := _read(source)) is not None:
        _write(out, *_answer(calls, frame[1], out))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
