"""A worker process: reads a call, makes it, writes its answer, until its input ends.

Frames are a kind, a length and bytes. In: S the settings, then C a call {"call", "asked"} as JSON.
Out: P progress, K compiling (1) or done with it (0), R the answer, F a file (media type, newline,
bytes), V a refusal (the words of a ValueError), X a failure. Libraries print to stderr.
"""

from __future__ import annotations

import json
import os
import struct
import sys
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import Any, BinaryIO

from ..._compiled import compiled_before, load, tell
from ..._progress import silent

HEAD = struct.Struct(">cI")
_LULL = 0.5  # seconds that the first request has for itself
_BREATH = 0.01  # seconds for a request that waits, between two steps
_TORCH = 1.5  # seconds before a transformer is loaded, which takes all of a core
_TELLING = ("run", "trace", "heads")  # calls that say how far they are
_ONE = threading.Lock()
_REFUSED = (ValueError, TypeError, ArithmeticError, ImportError)


def _read(stream: BinaryIO) -> tuple[bytes, bytes] | None:
    head = stream.read(HEAD.size)
    if len(head) < HEAD.size:
        return None
    kind, size = HEAD.unpack(head)
    body = stream.read(size)
    return (kind, body) if len(body) == size else None


def _write(stream: BinaryIO, kind: bytes, body: bytes) -> None:
    with _ONE:  # what is made ready beside the requests may tell that it compiles
        stream.write(HEAD.pack(kind, len(body)) + body)
        stream.flush()


class _Calls(dict[str, Callable[..., Any]]):
    """What this worker can do.

    The calls for texts take longest to import: they are loaded when asked for, or when nothing is.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__()
        self.lock = threading.RLock()
        self.models = settings["models"] if settings["lane"] == "maths" else None
        self.transformers = settings["lane"] == "transformers" and settings["transformers"]
        if settings["lane"] == "transformers":
            from ..answers.transformers import transformer_answers

            self.update(transformer_answers(settings["transformers"]))
        elif settings["lane"] == "experiments":
            from ..answers import experiments

            self.update(experiments.ANSWERS)
        else:
            from ..answers import tokens

            self.update(tokens.ANSWERS)

    def __missing__(self, name: str) -> Callable[..., Any]:
        if not self.complete() and name not in self:
            raise KeyError(name)
        return self[name]

    def complete(self) -> bool:
        """Load the calls for texts, once; True where there are some to load."""
        with self.lock:
            if self.models is None:
                return False
            from ..answers.texts import text_answers

            self.update(text_answers(self.models))
            self.models = None
        return True

    def get_ready(self) -> None:
        """Between the first requests, whatever others would wait for: the transformer; or stored
        kernels, which a large request loads in its midst, the classifier, and matplotlib."""
        if self.transformers:  # one that cannot be read says so when it is asked for
            time.sleep(_TORCH)
            self["ready"]({})
        elif self.models is not None:
            ready: dict[str, Any] = {"text": "ready", "label": None, "struck": []}
            steps: list[Callable[[], Any]] = [partial(_loaded, x) for x in ("planar", "batch")]
            steps += [self.complete, lambda: self["explain"](ready)]
            for step in (*steps, lambda: import_module("cynosure.drawing.run_report")):
                with self.lock:  # a module that is half imported is no good to a request
                    step()
                time.sleep(_BREATH)


def _loaded(kernels: str) -> None:
    if compiled_before(f"engine.kernels.{kernels}"):
        load(f"engine.kernels.{kernels}")


def _answer(
    calls: dict[str, Callable[..., Any]], body: bytes, out: BinaryIO
) -> tuple[bytes, bytes]:
    from pydantic_core import from_json, to_json

    from ..answers import File

    wanted = from_json(body)  # these two are several times faster than json's
    call, asked = calls[wanted["call"]], wanted["asked"]

    def report(done: float, what: str = "") -> None:
        said = {"done": round(float(done), 4), "what": str(what)[:300]}
        _write(out, b"P", json.dumps(said).encode())

    try:
        answer = call(asked, report) if wanted["call"] in _TELLING else call(asked)
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
    if settings["lane"] == "maths":  # compiled kernels are loaded before the first request
        asked = {"tokens": [[1.0, 0.0], [0.0, 1.0], [0.2, 0.1]], "alpha": 0.5, "A": None}
        more = {"exact": False, "max_layers": 100, "followed": True, "brief": False}
        calls["limit"](asked | more | {"deadline": 5.0})
    with suppress(ImportError, ValueError, OSError):  # not here, or less is allowed already
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (settings["memory"], settings["memory"]))
    _write(out, b"P", b'{"done": 0, "what": "ready"}')
    tell(lambda compiling: _write(out, b"K", b"01"[compiling : compiling + 1]))

    def beside() -> None:
        time.sleep(_LULL)
        with suppress(Exception):
            calls.get_ready()

    threading.Thread(target=beside, daemon=True).start()
    with silent():
        while (frame := _read(source)) is not None:
            with calls.lock:
                answer = _answer(calls, frame[1], out)
            _write(out, *answer)
    os._exit(0)  # whatever is being imported beside


if __name__ == "__main__":
    raise SystemExit(main())
