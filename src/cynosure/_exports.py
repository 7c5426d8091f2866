"""Lazy names for the packages' front pages: what is named is imported when it is first used.

The names stand once, in the stub `__init__.pyi` beside the package's `__init__.py`, one line each
as type checkers and editors want them: `from .loop import simulate as simulate`.
Public functions and the methods of public classes name the argument that made them fail (`_blame`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import wraps
from importlib import import_module
from inspect import isgeneratorfunction
from os import path
from types import FunctionType, ModuleType
from typing import Any, NoReturn, TypeVar

__all__ = ["guard", "guarded", "lazily"]

T = TypeVar("T")


def lazily(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` for the module `package`, its own `__name__`.

    A line `from .a import b as b` of the stub gives b of the module a, or the module a.b.
    """
    home = dict(_listed(package))
    public = sorted(home)

    def get(name: str) -> Any:
        if name not in home:
            raise AttributeError(_unknown(package, name, public))
        module = import_module(home[name], package)
        if module.__name__ != package and hasattr(module, name):
            value = _guard(module, name)
        else:
            value = import_module(f"{module.__name__}.{name}")
        setattr(sys.modules[package], name, value)
        return value

    return get, lambda: list(public), public


def _listed(package: str) -> Iterable[tuple[str, str]]:
    """Each name of the stub, and the module it comes from, relative to the package."""
    own: Any = sys.modules[package]
    stub = path.join(path.dirname(own.__file__), "__init__.pyi")
    for line in own.__spec__.loader.get_data(stub).decode("utf-8").splitlines():
        if line.startswith("from ."):
            module, _, names = line.removeprefix("from ").partition(" import ")
            yield names.partition(" as ")[0], module


def guarded(made: T) -> T:
    """The function, or the class changed in place, that says which argument does not fit."""
    if isinstance(made, type):
        for name, one in list(vars(made).items()):
            if name[0] == "_" and name != "__init__":
                continue
            if isinstance(one, FunctionType):
                setattr(made, name, guarded(one))
            elif isinstance(one, classmethod):
                setattr(made, name, classmethod(guarded(one.__func__)))
        return made
    if not isinstance(made, FunctionType) or hasattr(made, "_guarded"):
        return made

    def again(args: Any, named: Any, error: Exception) -> Exception:
        from ._blame import blame

        return blame(made, args, named, error) or error

    @wraps(made)
    def call(*args: Any, **named: Any) -> Any:
        try:
            return made(*args, **named)
        except Exception as error:
            if (better := again(args, named, error)) is error:
                raise
            raise better from error

    @wraps(made)
    def each(*args: Any, **named: Any) -> Any:
        try:
            yield from made(*args, **named)
        except Exception as error:
            if (better := again(args, named, error)) is error:
                raise
            raise better from error

    if isgeneratorfunction(made):
        call = each
    call._guarded = True  # type: ignore[attr-defined]
    return call  # type: ignore[return-value]


def guard(package: str) -> None:
    """Everything public of the module of that name, once it is imported; `dir` shows that only."""
    module = sys.modules[package]
    module.__class__ = _Module
    own = [name for name, x in vars(module).items() if getattr(x, "__module__", "") == package]
    names = getattr(module, "__all__", None) or [name for name in own if name[0] != "_"]
    vars(module).setdefault("__dir__", lambda: sorted(names))
    for name in names:
        _guard(module, name)


class _Module(ModuleType):
    """A public module, which tells those who call it to call one of its functions."""

    def __call__(self, *args: object, **named: object) -> NoReturn:
        name = self.__name__.rpartition(".")[2]
        calls = [f"cy.{name}.{k}" for k in dir(self) if isinstance(getattr(self, k), FunctionType)]
        raise TypeError(f"{name} is a module; call one of {', '.join(calls)}")


def _guard(module: ModuleType, name: str) -> Any:
    """A public name of that module, guarded there too: pickles find a function by its home."""
    value = getattr(module, name)
    home = sys.modules.get(getattr(value, "__module__", None) or "", module)
    ours = home.__name__.startswith("cynosure")
    if name.startswith("_") or not ours or getattr(home, name, None) is not value:
        return value
    if isinstance(value, FunctionType | type):
        value = guarded(value)
        setattr(home, name, value)
        setattr(module, name, value)
    return value


def _unknown(package: str, name: str, public: Iterable[str]) -> str:
    import difflib

    near = difflib.get_close_matches(name, list(public), 1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"module {package!r} has no attribute {name!r}{hint}"
