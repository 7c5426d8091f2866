"""Signatures of the package checked at every call: what `jaxtyping.jaxtyped` does, but quickly.

jaxtyping binds the arguments of each call three times, which takes longer than most functions. Here
beartype checks a function once, when it is first called, inside jaxtyping's context: there "n" is
one number in all shapes of a call. A function without shapes needs no context, one without
annotations no check. Generators and coroutines are left to jaxtyping.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any, get_type_hints

import jaxtyping
from beartype import BeartypeConf, beartype

SHAPED = re.compile(r"\b(Bool|Complex|Float|Int)\[")
ORIGINAL = jaxtyping.jaxtyped
CONF = BeartypeConf(violation_type=jaxtyping.TypeCheckError)
SHAPES = ORIGINAL("context")
OFF = False  # whether nothing is checked


def check(modules: Sequence[str]) -> None:
    """Functions and dataclasses of these modules, which are not imported yet, check their calls."""
    jaxtyping.install_import_hook(modules, "beartype.beartype")
    jaxtyping.jaxtyped = checked  # what the hook writes above each function


def checked(thing: Any = None, *, typechecker: Any = None) -> Any:
    """Stands in for `jaxtyping.jaxtyped(typechecker=...)`."""
    if thing is None:
        return functools.partial(checked, typechecker=typechecker)
    if isinstance(thing, type):
        init = vars(thing).get("__init__")
        own = isinstance(init, FunctionType) and not hasattr(init, "__wrapped__")
        if own and dataclasses.is_dataclass(thing):
            thing.__init__ = _checked(init)
        return thing
    if isinstance(thing, classmethod | staticmethod):
        return type(thing)(checked(thing.__func__, typechecker=typechecker))
    asynchronous = inspect.iscoroutinefunction(thing) or inspect.isasyncgenfunction(thing)
    if not isinstance(thing, FunctionType) or asynchronous or inspect.isgeneratorfunction(thing):
        return ORIGINAL(thing, typechecker=typechecker)
    return _checked(thing) if thing.__annotations__ else thing


def _checked(call: Callable[..., Any]) -> Callable[..., Any]:
    ready: list[tuple[Callable[..., Any], bool]] = []

    @functools.wraps(call)
    def checking(*args: Any, **named: Any) -> Any:
        __tracebackhide__ = True
        if OFF:
            return call(*args, **named)
        if not ready:
            ready.append(_judge(call))
        judge, shaped = ready[0]
        if not shaped:
            return judge(*args, **named)
        with SHAPES:
            return judge(*args, **named)

    return checking


def _judge(call: Any) -> tuple[Callable[..., Any], bool]:
    """The same function behind beartype, its hints no strings any more; whether it has shapes."""
    twin = FunctionType(
        call.__code__, call.__globals__, call.__name__, call.__defaults__, call.__closure__
    )
    twin.__kwdefaults__, twin.__qualname__ = call.__kwdefaults__, call.__qualname__
    twin.__module__ = call.__module__
    hints = {name: _hint(hint, call.__globals__) for name, hint in call.__annotations__.items()}
    twin.__annotations__ = hints
    return beartype(conf=CONF)(twin), SHAPED.search(repr(hints)) is not None


def _hint(hint: Any, space: dict[str, Any]) -> Any:
    """What the annotation means; anything where it names what only type checkers import."""

    def of(value: Any) -> None: ...

    of.__annotations__ = {"value": hint}
    try:
        return get_type_hints(of, space, include_extras=True)["value"]
    except Exception:
        return Any
