"""Things by name: those of the package, those of installed packages, and anybody's `module:Name`.

A package adds to a registry by an entry point of its group, in its own pyproject.toml:

    [project.entry-points."cynosure.dynamics"]
    momentum = "my_package.momentum:Momentum"
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Generic, TypeVar, final

Thing = TypeVar("Thing")


@final
class Registry(dict[str, Thing], Generic[Thing]):
    """Names and what they stand for; `what` says it in errors, `fits` refuses anything else."""

    def __init__(
        self, group: str, what: str, fits: Callable[[Any], bool], own: Mapping[str, Thing]
    ) -> None:
        super().__init__(own)
        self.group, self.what, self.fits = f"cynosure.{group}", what, fits
        self._complete = False

    def installed(self) -> Registry[Thing]:
        """This registry, with what installed packages add to it; the package's own names stay."""
        if not self._complete:
            from importlib.metadata import entry_points

            self._complete = True
            for point in entry_points(group=self.group):
                if point.name not in self:
                    self[point.name] = self._fitting(point.value, point.load())
        return self

    def named(self, word: str) -> Thing:
        """What a word means: a name, the beginning of one name only, or `module:Name`."""
        if ":" in word:
            return self._fitting(word, imported(word))
        known = self if word in self else self.installed()
        found = [n for n in known if n == word] or [n for n in known if word and n.startswith(word)]
        if len(found) == 1:
            return known[found[0]]
        which = "several begin so" if found else f"no name of {self.what}"
        raise ValueError(
            f"{word}: {which} (there are {', '.join(found or known)}; or write module:Name)"
        )

    def _fitting(self, word: str, thing: Any) -> Thing:
        if not self.fits(thing):
            raise TypeError(f"{word}: expected {self.what}, got {thing!r:.80}")
        return thing


def imported(word: str, beside: str = "") -> Any:
    """`module:Name`, of a module that is installed or lies in the current folder.

    Modules in the folder `beside` come before all others but those loaded already.
    """
    module, _, name = word.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), *name.split("."))):
        raise ValueError(f"{word}: expected module:Name, such as my_module:Momentum")
    folder = beside or os.getcwd()
    if folder not in sys.path:
        sys.path.insert(0 if beside else len(sys.path), folder)
    try:
        thing = import_module(module)
        for part in name.split("."):
            thing = getattr(thing, part)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        raise ValueError(f"{word}: no module {module}, here or installed") from None
    except AttributeError:
        raise ValueError(f"{word}: {module} has no {name}") from None
    return thing
