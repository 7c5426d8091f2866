"""How far a long call is: a bar of tqdm in notebooks and terminals, silent in scripts that ask."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from threading import Lock, Timer
from typing import Any, TypeAlias, final

from ._compiled import compiling

Progress: TypeAlias = Callable[..., Any] | bool | None

AFTER = 1.0  # seconds, after which a call is long
_others = 0  # that show how far they are, or want nothing shown


@contextmanager
def silent() -> Iterator[None]:
    """Inside, no call shows a bar by itself: another one is shown, or nobody looks."""
    global _others
    _others += 1
    try:
        yield
    finally:
        _others -= 1


@contextmanager
def showing(
    progress: Progress, what: str, total: float | int | None = None, unit: str = ""
) -> Iterator[Callable[..., Any] | None]:
    """What a loop calls with (done, more): the caller's function, a bar, or None for nothing.

    `progress` None shows a bar in notebooks and on terminals, where the call lasts over a second;
    True shows it everywhere, False nowhere.
    """
    if callable(progress):
        yield progress
        return
    if not (progress if isinstance(progress, bool) else _watched()):
        yield None
        return
    bar = _Bar(what, total, unit)
    try:
        with silent():  # calls within this one
            yield bar
    finally:
        bar.close()


def _watched() -> bool:
    """Is somebody looking: a notebook or a terminal, in a call that is not part of another?"""
    if _others or os.environ.get("TQDM_DISABLE", "0") not in ("", "0"):
        return False
    if _in_notebook():
        return True
    with suppress(AttributeError, ValueError):  # no stream, or a closed one
        return sys.stderr.isatty()
    return False


def _in_notebook() -> bool:
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return shell is not None and "IPKernelApp" in shell.config


@final
class _Bar:
    """A bar of tqdm, made when the call has lasted a second, whatever it does at that moment."""

    def __init__(self, what: str, total: float | int | None, unit: str) -> None:
        self.how: dict[str, Any] = {"desc": what, "total": total, "unit": unit, "leave": False}
        if total is None and not unit:  # named steps
            self.how["bar_format"] = "{desc}{postfix} [{elapsed}]"
        self.bar: Any = None
        self.at: tuple[float | int, str] = (0, "")
        self.lock = Lock()
        self.timer = Timer(AFTER, self._show)
        self.timer.daemon = True
        self.timer.start()

    def __call__(self, done: float | int = 0, more: object = "") -> None:
        self.at = (done, str(more))
        if self.bar is None:
            return
        done, more = self.at
        if more != (self.bar.postfix or ""):
            self.bar.set_postfix_str(more)
        self.bar.update(done - self.bar.n)

    def _show(self) -> None:
        with self.lock:
            if _in_notebook() and find_spec("ipywidgets"):  # tqdm.auto warns, and in a thread aloud
                from tqdm.notebook import tqdm
            else:
                from tqdm import tqdm
            if not self.timer.finished.is_set():
                bar = tqdm(**self.how)
                if compiling() and not self.at[1]:
                    bar.set_postfix_str("compiling kernels, once")
                self.bar = bar

    def close(self) -> None:
        self.timer.cancel()
        with self.lock:
            if self.bar is not None:
                self.bar.close()
