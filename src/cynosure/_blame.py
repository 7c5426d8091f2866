"""Which argument made a call fail: what stands behind the messages of public functions.

A public call that fails in NumPy or Python is looked at again (`_exports.guarded`): the first
argument that does not fit its annotation is named. Calls that succeed cost nothing.
"""

from __future__ import annotations

import inspect
import linecache
import re
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from numbers import Real
from operator import index
from os import PathLike
from pathlib import Path
from traceback import walk_tb
from typing import Any

import numpy as np

__all__ = ["blame", "shown"]

_HERE = str(Path(__file__).parent)
_GUARD = str(Path(__file__).with_name("_exports.py"))
_LIBRARIES = tuple({sysconfig.get_path(kind) for kind in ("stdlib", "purelib", "platlib")})
# What a library raises where arguments do not fit; others (AttributeError, KeyError) are bugs
# unless an argument is of the wrong kind.
_ARGUMENTS = (ArithmeticError, IndexError, MemoryError, NotImplementedError, RecursionError,
              TypeError, ValueError)  # fmt: skip


def blame(
    call: Callable[..., Any], args: tuple[Any, ...], named: Mapping[str, Any], error: Exception
) -> Exception | None:
    """An error that names the argument, or None where `error` says enough or is a bug."""
    library = type(error).__module__.partition(".")[0]
    if library not in ("builtins", "decimal", "numpy", "scipy", "jaxtyping") or _is_ours(error):
        return None  # NotFittedError, say, is of a kind that callers catch
    try:
        given = inspect.signature(call).bind(*args, **named).arguments
    except TypeError:
        return None  # Python names an argument that is missing or too many
    hints = getattr(call, "__annotations__", {})
    space = {**getattr(inspect.unwrap(call), "__globals__", {})}
    for name, value in given.items():
        if name == "self":
            continue
        parts = list(_parts(hints[name])) if isinstance(hints.get(name), str) else ["Any"]
        lacks = getattr(error, "name", "") if getattr(error, "obj", error) is value else ""
        if lacks or not any(_fits(value, one, space) for one in parts):
            wanted = " or ".join(dict.fromkeys(_words(one) for one in parts))
            which = f", which has {lacks!r}," if lacks else ","
            return TypeError(f"{name}: expected {wanted}{which} got {shown(value)}")
    if not isinstance(error, _ARGUMENTS) or not given:
        return None
    what = ", ".join(f"{k} = {shown(v, 40)}" for k, v in given.items() if k != "self")
    called = call.__qualname__.removesuffix(".__init__").rpartition(".")[2]
    said = f"{called}: cannot be computed from {what}"
    return ValueError(f"{said}: {str(error)[:200] or type(error).__name__}")


def shown(value: object, most: int = 80) -> str:
    """A value in a message: never long, never the cause of another error."""
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple) and shape != ():
        return f"{type(value).__name__} of shape {tuple(shape)}, {getattr(value, 'dtype', '')}"
    try:
        text = repr(value)
    except Exception:  # a list in itself 3,000 times, an int of 5,000 digits
        return f"a {type(value).__name__} that cannot be shown"
    return text if len(text) <= most else text[: most - 3] + "..."


def _is_ours(error: Exception) -> bool:
    """Raised by a `raise` of the package, by the user's own function, or about a file or extra."""
    if isinstance(error, OSError | ImportError) or error.__traceback__ is None:
        return True
    places = [(frame.f_code.co_filename, line) for frame, line in walk_tb(error.__traceback__)]
    if places[1:] and places[-1][0] == _GUARD:  # a name that a module of ours does not have
        places.pop()
    file, number = places[-1]
    inside = any(f.startswith(_HERE) and f != _GUARD for f, _ in places)
    if inside and Path(file).is_absolute() and not file.startswith((_HERE, *_LIBRARIES)):
        return True  # in a function that the user gave
    line = linecache.getline(file, number)
    if isinstance(error, ArithmeticError | MemoryError | RecursionError):
        # A raise of this error, and not of a ValueError whose message was being written.
        return re.search(r"raise (?!ValueError|TypeError)", line) is not None
    return file.startswith(_HERE) and "raise" in line


def _parts(hint: str) -> Iterator[str]:
    """The alternatives of an annotation, those inside brackets left alone."""
    depth, start = 0, 0
    for at, letter in enumerate(hint):
        depth += (letter in "[(") - (letter in "])")
        if letter == "|" and depth == 0:
            yield hint[start:at].strip()
            start = at + 1
    yield hint[start:].strip()


def _number(value: object) -> bool:
    """A real number of the range of floats; a Decimal or a string is none."""
    try:
        return isinstance(value, Real | np.number) and isinstance(float(value), float)
    except (TypeError, ValueError, OverflowError):
        return False


def _whole(value: object) -> bool:
    try:
        return -(2**63) <= index(value) < 2**63  # type: ignore[arg-type]
    except TypeError:
        return False


def _array(value: object) -> bool:
    """Finite real numbers in a rectangle; a tensor is one where it is of real numbers."""
    if type(value).__module__.startswith("torch"):
        return not value.is_complex()  # type: ignore[attr-defined]
    try:
        a = np.asarray(value)
        a = a if a.dtype != object else a.astype(np.float64)
    except Exception:
        return False
    return a.dtype.kind in "biuf" and a.size > 0 and a.ndim > 0 and bool(np.isfinite(a).all())


def _list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


_KINDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "None": (lambda x: x is None, "None"),
    "int": (_whole, "a whole number"),
    "float": (_number, "a number"),
    "str": (lambda x: isinstance(x, str), "text"),
    "bool": (lambda x: isinstance(x, bool | np.bool_), "True or False"),
    "Path": (lambda x: isinstance(x, PathLike), "a path"),
    "Callable": (callable, "a function"),
    "Mapping": (lambda x: isinstance(x, Mapping), "a mapping such as a dict"),
    "dict": (lambda x: isinstance(x, dict), "a dict"),
    "Array": (_array, "an array of finite real numbers"),
    "list": (_list, "a list"),
    "Sequence": (lambda x: _list(x) or isinstance(x, np.ndarray), "a list"),
    "Iterable": (
        lambda x: isinstance(x, Iterable) and not isinstance(x, str | bytes),
        "several of them in a list",
    ),
}
_SAME = {"SupportsIndex": "int", "SupportsFloat": "float", "PathLike": "Path", "tuple": "list"}
_SAME |= dict.fromkeys(("ndarray", "Float", "Int", "Bool"), "Array")


def _head(hint: str) -> str:
    """The last name before brackets: ndarray of np.ndarray, as the name under which it is known."""
    name = re.split(r"[\[(]", hint, maxsplit=1)[0].rpartition(".")[2].strip("'\" ")
    return _SAME.get(name, name)


def _fits(value: object, hint: str, space: Mapping[str, Any]) -> bool:
    head = _head(hint)
    if head in _KINDS:
        return _KINDS[head][0](value)
    if head == "Literal":
        return repr(value) in re.split(r",\s*", hint[len("Literal[") : -1])
    kind = space.get(head)
    if head in ("Any", "T", "object") or not head[:1].isupper():
        return True
    if isinstance(kind, type):
        return isinstance(value, kind)
    if kind is not None:
        return True  # an alias
    return any(base.__name__ == head for base in type(value).__mro__)  # imported for checkers only


def _words(hint: str) -> str:
    head = _head(hint)
    if head == "Literal":
        return "one of " + hint[len("Literal[") : -1]
    if head in ("Any", "object", "T"):
        return "something"
    return _KINDS[head][1] if head in _KINDS else f"a {head}"
