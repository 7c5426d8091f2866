"""What a command reads: tokens, matrices, alpha, parameters; and the names of its outputs."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

if TYPE_CHECKING:
    import numpy as np

    from ..attention import Hardmax

_MOST_ON_STDIN = 1 << 30  # bytes


@final
@dataclass(frozen=True, eq=False)
class Inputs:
    """The tokens and matrices of a command, and where they came from."""

    source: str
    z: np.ndarray
    rational: list | None = None
    matrices: Mapping[str, tuple[str, np.ndarray]] = field(default_factory=dict)  # by name: A, V..

    @staticmethod
    def read(tokens: str, A: str | None = None, **matrices: str | None) -> Inputs:
        from ..simulation.configurations import read

        z, rational = _tokens(tokens)
        files = {name: path for name, path in {"A": A, **matrices}.items() if path is not None}
        return Inputs(tokens, z, rational, {name: (p, read(p)) for name, p in files.items()})

    def on(self, device: str) -> Any:
        """The tokens as they are (cpu), or as a tensor on the GPU (cuda)."""
        if device == "cpu":
            return self.z
        if device != "cuda":
            raise ValueError(f"--device: expected cpu or cuda, got {device!r}")
        import torch

        if not torch.cuda.is_available():
            said = "no CUDA device here; use --device cpu (`cynosure info` lists devices)"
            raise ValueError(f"--device: {said}")
        return torch.tensor(self.z, device="cuda")

    @property
    def A(self) -> np.ndarray | None:
        return self.matrices.get("A", ("", None))[1]

    def attention(self) -> Hardmax:
        from ..attention import Hardmax

        return Hardmax(self.A)

    def cautions(self) -> Iterator[str]:
        """What the theorems exclude and these inputs contain."""
        import numpy as np

        from .._types import definite

        if zero := int((self.z == 0).all(axis=1).sum()):
            yield f"{zero} zero token(s): their scores are all equal, so they follow every token."
        if copies := len(self.z) - len(np.unique(self.z, axis=0)):
            yield f"{copies} duplicate token(s): equal tokens count as one value class."
        if not definite(self.A):
            yield "A is not symmetric positive definite: a limit need not exist."

    def describe(self) -> dict[str, Any]:
        """Names and SHA-256 of the numbers themselves (little-endian float64, row by row)."""
        from .._types import fingerprint

        out: dict[str, Any] = {"tokens": self.source, "tokens_sha256": fingerprint(self.z)}
        for name, (path, values) in self.matrices.items():
            out |= {name: path, f"{name}_sha256": fingerprint(values)}
        return out


def _tokens(spec: str) -> tuple[np.ndarray, list | None]:
    """Tokens of a file, of stdin (-) or of a named configuration; the latter's rationals if any."""
    from ..simulation.configurations import CONFIGURATIONS, golden_exact, read

    if spec == "-":
        return _stdin(), None
    name, _, options = spec.partition(":")
    known: Mapping[str, Any] = CONFIGURATIONS.installed()
    module, _, rest = options.partition(":")
    if name not in known and module.isidentifier() and not Path(spec).exists():
        known, name, options = {spec: CONFIGURATIONS.named(f"{name}:{module}")}, spec, rest
    if Path(spec).exists() or not (name in known or ":" in spec):
        try:
            return read(spec), None
        except FileNotFoundError as error:
            raise ValueError(f"{error} (configurations: {listed(known)})") from None
    if name not in known:
        raise ValueError(f"no configuration {name!r} (there are {listed(known)})")
    bare, named = key_values(options)
    plain = [named_value(part) for part in bare]
    try:
        z = known[name](*plain, **{k: named_value(v) for k, v in named.items()})
    except TypeError as error:
        from inspect import signature

        parameters = signature(known[name]).parameters.values()
        takes = ",".join(f"{p.name}={p.default}" for p in parameters)
        raise ValueError(f"{spec}: {error} (try {name}:{takes})") from None
    return z, golden_exact(*plain, **named) if name == "golden" else None


def key_values(options: str) -> tuple[list[str], dict[str, str]]:
    """Of "a,b=1,c=2" what has no key, ["a"], and the rest, {"b": "1", "c": "2"}."""
    parts = [part.strip() for part in options.split(",") if part.strip()]
    bare = [part for part in parts if "=" not in part]
    return bare, dict(part.split("=", 1) for part in parts if "=" in part)


def named_value(text: str) -> Any:
    """A whole number, else a float, else the word itself."""
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text


def _stdin() -> np.ndarray:
    import tempfile

    from ..simulation.configurations import read

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "stdin.csv"
        with path.open("wb") as file:
            while block := sys.stdin.buffer.read(1 << 20):
                if file.tell() > _MOST_ON_STDIN:
                    raise ValueError("stdin: over 1 GB; write it to a file and name that")
                file.write(block)
        try:
            return read(path)
        except ValueError as error:
            raise ValueError(str(error).replace(str(path), "stdin")) from None


def step(text: str) -> float | Fraction:
    """1/10 is the rational; 0.1 is the float nearest to it."""
    from .._types import as_alpha

    try:
        value = text if "/" in text else float(text)
    except ValueError:
        raise ValueError(f"alpha: expected a number such as 0.5 or 1/2, got {text!r}") from None
    exact = as_alpha(value)
    return exact if isinstance(value, str) else value


def settings(params: Any, changes: list[str]) -> dict[str, Any]:
    """KEY=VALUE in the type the parameter has; tuples as comma-separated values."""
    names = [f.name for f in fields(params)]
    out: dict[str, Any] = {}
    for change in changes:
        key, sign, text = change.partition("=")
        if not sign or key not in names:
            raise ValueError(f"--set {change}: expected KEY=VALUE with a KEY of {listed(names)}")
        out[key] = _like(getattr(params, key), change, text)
    return out


def _like(default: Any, change: str, text: str) -> Any:
    """`text` in the type of `default`; a matrix is 2,1;1,2 or ((2,1),(1,2))."""
    if isinstance(default, tuple):
        nested = isinstance(default[0], tuple)
        if nested and text.startswith("(("):  # as Python writes it
            text = ";".join(part.strip("(), ") for part in text.split("),"))
        parts = text.split(";" if nested else ",")
        row = tuple(_like(default[0], change, part.strip()) for part in parts)
        if any(isinstance(x, str) for x in row) and not isinstance(default[0], str):
            raise ValueError(f"--set {change}: expected numbers such as 1,2,3 (matrix rows by ;)")
        return row
    if isinstance(default, str):
        return text
    value = named_value(text)
    if isinstance(default, float) and isinstance(value, int):
        return float(value)
    if isinstance(default, int) and not isinstance(value, int):
        raise ValueError(f"--set {change}: expected a whole number, got {text!r}")
    return value


def is_run(spec: str) -> bool:
    """True for an .npz that holds a trajectory rather than tokens."""
    from .._files import member_names

    if Path(spec).suffix.lower() != ".npz" or not Path(spec).is_file():
        return False
    with suppress(ValueError):
        return "header" in member_names(spec)
    return False


def claim(path: Path | None, kinds: tuple[str, ...], force: bool) -> None:
    """Refuse an output before the work, not after it."""
    from .._files.writing import is_stream

    if path is None:
        return
    if path.suffix.lower() not in kinds:
        raise ValueError(f"{path}: expected a name ending in {' or '.join(kinds)}")
    if path.is_dir():
        raise ValueError(f"{path} is a folder; expected the name of a file")
    if is_stream(path):  # nothing is there to lose
        return
    if path.exists() and not force:
        raise ValueError(f"{path} exists (use --force to overwrite it)")
    can_be_made(path)


def can_be_made(path: Path) -> None:
    """Refuse an output whose folder cannot be, or cannot be written to."""
    parent = Path(os.path.realpath(path)).parent
    while not parent.exists():
        parent = parent.parent
    if not parent.is_dir():
        raise ValueError(f"{path}: {parent} is a file, so that nothing can be put below it")
    if not os.access(parent, os.W_OK):
        raise ValueError(f"{path}: {parent} may not be written to; choose another folder")


def listed(names: Iterable[Any]) -> str:
    return ", ".join(str(name) for name in names)
