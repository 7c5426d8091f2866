"""What is swept: a cell (any importable function), its axes, and what one call of it gives."""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, SupportsIndex, final

import numpy as np

from .. import __version__
from .._progress import silent

__all__ = ["DONE", "FAILED", "MEANING", "WAITING", "Outputs", "Plan", "Rows", "compute"]

WAITING: int = 0
DONE: int = 1
FAILED: int = 2
MEANING = "waiting done failed"
OWN = ("status", "error")  # names of the store itself
_LONGEST_ERROR = 500  # characters


@final
@dataclass(frozen=True, eq=False)
class Plan:
    """cell(**fixed, name=value, ...) for every combination of the axes, the last axis fastest.

    The seeds are the last axis, unless `seeds` holds them: then one call gets all of them.
    """

    cell: Callable[..., Mapping[str, Any]]
    axes: dict[str, np.ndarray]
    fixed: dict[str, Any]
    seeds: np.ndarray | None = None
    units: dict[str, str] = field(default_factory=dict)

    @staticmethod
    def of(
        cell: Any,
        grid: Any,
        seeds: Iterable[Any] | int | None = None,
        vectorized: bool = False,
        units: Any = None,
    ) -> Plan:
        """The plan of sweep()'s arguments, which are judged here."""
        if not callable(cell):
            raise TypeError(f"cell: expected a function, got {type(cell).__name__}")
        if not isinstance(grid, Mapping) or not grid:
            raise TypeError(f"grid: expected {{name: values, ...}}, got {grid!r}")
        axes, fixed = {}, {}
        for name, values in grid.items():
            if not isinstance(name, str) or not name.isidentifier() or name in ("seed", *OWN):
                raise ValueError(f"grid: {name!r} cannot be the name of an axis; rename it")
            if isinstance(values, str) or np.ndim(values) == 0:
                fixed[name] = _scalar(name, values)
            else:
                axes[name] = _axis(name, values)
        if vectorized and seeds is None:
            raise ValueError("vectorized=True passes all seeds to one call: give seeds=range(...)")
        drawn = None if seeds is None else _axis("seeds", list(counted(seeds)))
        if drawn is not None and drawn.dtype != np.int64:
            raise TypeError(f"seeds: expected whole numbers, got {drawn[:5].tolist()}")
        if drawn is not None and not vectorized:
            axes["seed"] = drawn
        words = {} if units is None else units
        if not isinstance(words, Mapping) or not all(
            isinstance(word, str) for pair in words.items() for word in pair
        ):
            raise TypeError(f'units: expected {{"t": "seconds", ...}}, got {units!r}')
        plan = Plan(cell, axes, fixed, drawn if vectorized else None, dict(words))
        if not axes:
            raise ValueError("grid: expected an axis with several values, got single values only")
        try:
            inspect.signature(cell).bind(**plan.call(0))
        except TypeError as error:
            asked = ", ".join(plan.call(0))
            raise TypeError(f"cell: is called with {asked}, and refuses: {error}") from None
        except ValueError:  # a builtin without a signature: the first call will tell
            pass
        return plan

    @property
    def shape(self) -> tuple[int, ...]:
        """How many cells there are along each axis."""
        return tuple(len(values) for values in self.axes.values())

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def lead(self) -> tuple[int, ...]:
        """The axis of seeds with which arrays of a cell begin, if one call gets all seeds."""
        return () if self.seeds is None else (len(self.seeds),)

    @property
    def name(self) -> str:
        """module:function, by which the cell can be imported."""
        return f"{self.cell.__module__}:{self.cell.__qualname__}"

    def call(self, i: int) -> dict[str, Any]:
        """The arguments of the i-th cell: Python's own numbers and texts."""
        at = np.unravel_index(i, self.shape)
        given = {name: values[k].item() for (name, values), k in zip(self.axes.items(), at)}
        seeds = {} if self.seeds is None else {"seed": self.seeds}
        return {**self.fixed, **given, **seeds}

    def in_words(self, i: int) -> str:
        values = {name: x for name, x in self.call(i).items() if name in self.axes}
        return ", ".join(f"{name} = {x}" for name, x in values.items())

    def identity(self) -> dict[str, Any]:
        """What a store is of, beside its axes: another identity is another sweep."""
        package = self.cell.__module__.partition(".")[0]
        version = getattr(sys.modules.get(package), "__version__", None)
        return {
            "cell": self.name,
            "source": _source(self.cell),
            "versions": {"cynosure": __version__, package: version},
            "fixed": self.fixed,
            "vectorized": self.seeds is not None,
        }


def counted(seeds: Any) -> Iterable[Any]:
    """16 is range(16)."""
    if isinstance(seeds, SupportsIndex) and not isinstance(seeds, bool):
        if not 0 < (many := seeds.__index__()) <= 1 << 20:
            raise ValueError(f"seeds: expected 1 to {1 << 20} of them, got {many}")
        return range(many)
    if isinstance(seeds, str | bool) or not isinstance(seeds, Iterable):
        raise TypeError(f"seeds: expected a number of seeds such as 16, or a list, got {seeds!r}")
    return seeds


def _scalar(name: str, value: Any) -> Any:
    value = value.item() if isinstance(value, np.generic | np.ndarray) else value
    if not isinstance(value, bool | int | float | str) or value != value:
        raise TypeError(f"grid: {name} expected numbers or texts, got {value!r}")
    return value


def _axis(name: str, values: Any) -> np.ndarray:
    listed = [_scalar(name, v) for v in (values.tolist() if hasattr(values, "tolist") else values)]
    if not listed:
        raise ValueError(f"{name}: expected at least one value, got none")
    if len({"text" if isinstance(v, str) else isinstance(v, bool) for v in listed}) > 1:
        raise TypeError(f"{name}: expected values of one kind, got {listed[:5]}")
    axis = np.array(listed)
    if axis.dtype == object:
        raise ValueError(f"{name}: a whole number is too large for 64 bits; write it as 1e20, say")
    if len(np.unique(axis)) < len(axis):
        raise ValueError(f"{name}: a value is there twice; every value is one place of the grid")
    return axis


def _source(function: Callable[..., Any]) -> str:
    """The text of the function and of the functions, classes and constants of its module it names.

    What is imported from elsewhere is known by its version only.
    """
    home = inspect.unwrap(function).__module__
    module = vars(sys.modules[home])
    if "<" in function.__qualname__:
        raise TypeError(
            f"cell: {function.__qualname__} has no name of its own, by which a store could know it;"
            " define it with `def` at the top of a module"
        )
    found: dict[str, str] = {}
    waiting: list[tuple[str, Any]] = [(function.__name__, function)]
    while waiting:
        name, thing = waiting.pop()
        if name in found:
            continue
        thing = inspect.unwrap(getattr(thing, "py_func", thing))  # of numba
        if isinstance(thing, bool | int | float | str | tuple):
            found[name] = f"{name} = {thing!r}"
        if not (inspect.isfunction(thing) or inspect.isclass(thing)) or thing.__module__ != home:
            continue
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(thing)))
        except (OSError, SyntaxError):
            raise TypeError(
                f"cell: the source of {home}.{name} cannot be read, so that a store could not tell "
                "when it changes; put it into a file, or sweep with store=None"
            ) from None
        found[name] = ast.unparse(tree)
        used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        waiting += [(other, module[other]) for other in sorted(used) if other in module]
    first = found.pop(function.__name__)
    return "\n\n".join([first, *(found[name] for name in sorted(found))])


# --- what a cell gives ---------------------------------------------------------------------------


Rows = dict[str, np.ndarray]  # results of some cells in their order, with their status and error


class Output(NamedTuple):
    """One number or array of every cell: its own dimensions, their lengths, its type."""

    dims: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: np.dtype


@final
@dataclass(frozen=True, eq=False)
class Outputs:
    """What every cell must give, as the first one did; `coords` are the same in all of them."""

    arrays: dict[str, Output]
    coords: dict[str, np.ndarray]

    @staticmethod
    def like(plan: Plan, found: Any) -> Outputs:
        """Those of the first cell."""
        values = _values(plan, found)
        taken = {*plan.call(0), "seed", *OWN}
        arrays, coords = {}, {}
        for name, (dims, x) in values.items():
            if name in taken or (set(dims) & taken):
                raise ValueError(f"cell: {name} over {dims} takes a name that the grid has already")
            if dims == (name,):
                coords[name] = x
            else:
                arrays[name] = Output(dims, x.shape[len(plan.lead) :], x.dtype)
        if not arrays:
            raise ValueError(f"cell: expected a number or an array at least, got {list(found)}")
        seen = {name: len(x) for name, x in coords.items()}
        for out in arrays.values():
            for dim, n in zip(out.dims, out.shape):
                if seen.setdefault(dim, n) != n:
                    raise ValueError(f"cell: {dim} has two lengths, {seen[dim]} and {n}")
        return Outputs(arrays, coords)

    def check_units(self, plan: Plan) -> None:
        """Refuse units of what is not there, which would be a slip of the pen."""
        known = [*plan.call(0), *self.coords, *self.arrays]
        if unknown := [name for name in plan.units if name not in known]:
            raise ValueError(f"units: {unknown[0]!r} is none of {', '.join(known)}")

    def fit(self, plan: Plan, found: Any) -> dict[str, np.ndarray]:
        """The arrays of a cell, if it gave what the first one did; ValueError if not."""
        values = _values(plan, found)
        if values.keys() != self.arrays.keys() | self.coords.keys():
            raise ValueError(
                f"expected {[*self.arrays, *self.coords]} as in the first cell, got {list(found)}"
            )
        for name, x in self.coords.items():
            if not np.array_equal(values[name][1], x):
                raise ValueError(f"{name}: expected the same values in every cell; keep it fixed")
        out = {}
        for name, want in self.arrays.items():
            (dims, x), shape = values[name], (*plan.lead, *want.shape)
            if x.shape != shape or dims != want.dims:
                raise ValueError(
                    f"{name}: expected shape {shape} over {want.dims} as in the first cell, got "
                    f"{x.shape} over {dims}"
                )
            if not np.can_cast(x.dtype, want.dtype, "safe"):
                raise ValueError(
                    f"{name}: expected {want.dtype} as in the first cell, got {x.dtype}; return "
                    "one type, float(x) for instance"
                )
            out[name] = x.astype(want.dtype)
        return out

    def empty(self, plan: Plan, shape: tuple[int, ...]) -> Rows:
        """Arrays for cells of that shape, before there is anything in them."""
        return {
            name: np.full((*shape, *plan.lead, *out.shape), missing(out.dtype), out.dtype)
            for name, out in self.arrays.items()
        } | {"status": np.full(shape, WAITING, np.int8), "error": np.full(shape, "", dtype=object)}


def missing(dtype: np.dtype) -> Any:
    """What stands where there is no value: NaN, and 0 where a type has none (see the status)."""
    return dtype.type(np.nan if dtype.kind in "fc" else 0)


def _values(plan: Plan, found: Any) -> dict[str, tuple[tuple[str, ...], np.ndarray]]:
    """name -> (its own dimensions, array); with `seeds` the array begins with their axis."""
    if not isinstance(found, Mapping) or not all(isinstance(name, str) for name in found):
        raise TypeError(f"cell: expected a dict of numbers and arrays, got {type(found).__name__}")
    out = {}
    for name, value in found.items():
        dims, x = value if _names_dims(value) else (None, value)
        x, dims = np.asarray(x), (dims,) if isinstance(dims, str) else dims
        if x.dtype.kind not in "biufc" or x.dtype.itemsize > (16 if x.dtype.kind == "c" else 8):
            raise TypeError(f"{name}: expected numbers, got {x.dtype}")
        lead = () if dims == (name,) else plan.lead
        if x.shape[: len(lead)] != lead:
            raise ValueError(
                f"{name}: expected one entry for each of {lead[0]} seeds first (vectorized=True), "
                f"got shape {x.shape}"
            )
        inner = x.ndim - len(lead)
        dims = tuple(f"{name}_{k}" for k in range(inner)) if dims is None else tuple(dims)
        if len(dims) != inner:
            raise ValueError(f"{name}: expected {inner} names of dimensions, got {dims}")
        out[name] = (dims, x)
    return out


def _names_dims(value: Any) -> bool:
    """True for (dims, array), as xarray writes it: ("t", x) or (("t", "k"), x)."""
    if not isinstance(value, tuple) or len(value) != 2:
        return False
    dims = value[0]
    return isinstance(dims, str | list | tuple) and all(isinstance(dim, str) for dim in dims)


# --- cells computed ------------------------------------------------------------------------------


def compute(plan: Plan, outputs: Outputs, cells: Sequence[int] | np.ndarray) -> Rows:
    """The cells of these numbers, on one thread of BLAS: sums in another order are other bits."""
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    with threadpool_limits(1), silent():
        return rows(plan, outputs, cells)


def rows(plan: Plan, outputs: Outputs, cells: Sequence[int] | np.ndarray) -> Rows:
    """`compute` with the threads there are."""
    out = outputs.empty(plan, (len(cells),))
    out["status"][:] = DONE
    for k, i in enumerate(cells):
        try:
            row: dict[str, Any] = outputs.fit(plan, plan.cell(**plan.call(int(i))))
        except (Exception, SystemExit) as error:
            row = {"status": FAILED, "error": said(error)}
        for name, x in row.items():
            out[name][k] = x
    return out


def said(error: BaseException) -> str:
    """An error as the store keeps it; a zero byte would end a text elsewhere."""
    text = f"{type(error).__name__}: {error}".replace("\0", " ")
    text = text.encode("utf-8", "replace").decode()
    return text if len(text) <= _LONGEST_ERROR else text[: _LONGEST_ERROR - 4] + " ..."


# --- blocks --------------------------------------------------------------------------------------


def block_shape(shape: tuple[int, ...], most: int) -> tuple[int, ...]:
    """The largest block of at most `most` cells: last axes whole, one cut evenly, first ones 1."""
    out: tuple[int, ...] = ()
    for n in reversed(shape):
        parts = -(-n // max(1, min(n, most)))
        out = (-(-n // parts), *out)
        most = most // n if parts == 1 else 1
    return out
