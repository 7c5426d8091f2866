"""The store of a sweep: a zarr folder that xarray reads, one chunk for each block of cells.

Each array of a block is one chunk, a file of its own, put in place in one rename; the chunk of the
status comes last and vouches for the others. A process killed between two of them has written a
block that counts as waiting, and is computed again to the same bits. The layout (`block`) is
chosen when the store is made and written into it. The folder itself appears in one rename too.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

from .._files import parsed_json, read_bytes, sweep
from .._files.folders import canonical, sha256
from .._files.stores import appearing, readable, whole
from .plan import DONE, FAILED, MEANING, WAITING, Output, Outputs, Plan, missing

__all__ = ["Store", "find", "make", "open_sweep"]

FORMAT, VERSION = "cynosure-sweep", 1
_LARGEST_HEADER = 64 << 20  # bytes
_LONGEST_AXIS = 1 << 24  # values
NEEDED = 'sweeps need xarray and zarr: pip install "cynosure[sweep]"'


@final
@dataclass(frozen=True, eq=False)
class Store:
    """The arrays of a sweep over its axes, on disk or in memory, and the shape of a block."""

    plan: Plan
    outputs: Outputs
    block: tuple[int, ...]
    arrays: Mapping[str, Any]  # name -> what can be read and assigned by places
    path: Path | None = None

    def place(self, number: int) -> tuple[slice, ...]:
        """Where the cells of that block are, in the order of the cells."""
        counts = tuple(-(-n // step) for n, step in zip(self.plan.shape, self.block))
        corner = np.unravel_index(number, counts)
        return tuple(
            slice(int(k) * step, min((int(k) + 1) * step, n))
            for k, step, n in zip(corner, self.block, self.plan.shape)
        )

    @property
    def blocks(self) -> int:
        """How many there are."""
        return math.prod(-(-n // step) for n, step in zip(self.plan.shape, self.block))

    def write(
        self,
        place: tuple[slice, ...],
        status: np.ndarray,
        errors: np.ndarray,
        values: Mapping[str, np.ndarray],
    ) -> None:
        """A whole block; the status last."""
        for name, x in values.items():
            self.arrays[name][place] = x
        self.arrays["error"][place] = errors
        self.arrays["status"][place] = status

    def read(self, place: tuple[slice, ...]) -> tuple[np.ndarray, np.ndarray, dict]:
        """(status, errors, values) of a block, to be changed and written again."""
        with readable(self.path):
            values = {name: np.array(self.arrays[name][place]) for name in self.outputs.arrays}
            errors = np.array(self.arrays["error"][place], dtype=object)
            return np.array(self.arrays["status"][place]), errors, values

    def dataset(self) -> Any:
        """As an xarray Dataset: read from the disk as it is asked for, or what is in memory."""
        if self.path is not None:
            return open_sweep(self.path)
        import xarray

        data = {name: (_dims(self, name), x) for name, x in self.arrays.items()}
        coords = {**_coords(self.plan), **self.outputs.coords}
        found = xarray.Dataset(data, coords=coords)
        found["status"].attrs = _FLAGS
        plan = self.plan
        return _told(found, list(self.outputs.arrays), plan.fixed, plan.name, plan.units)


_FLAGS = {"flag_values": [WAITING, DONE, FAILED], "flag_meanings": MEANING}


def _coords(plan: Plan) -> dict[str, np.ndarray]:
    return plan.axes if plan.seeds is None else {**plan.axes, "seed": plan.seeds}


def _dims(store: Store, name: str) -> tuple[str, ...]:
    if name not in store.outputs.arrays:
        return tuple(store.plan.axes)
    return (*_coords(store.plan), *store.outputs.arrays[name].dims)


def _told(
    found: Any, names: list[str], fixed: Mapping[str, Any], cell: str, units: Mapping[str, str]
) -> Any:
    """The Dataset in our order, with the fixed parameters as coordinates of no dimension."""
    found = found[[*names, "status", "error"]].assign_coords(dict(fixed))
    found.attrs = {"cell": cell}
    for name, unit in units.items():
        found[name].attrs["units"] = unit
    return found


# --- in memory, or new on disk -------------------------------------------------------------------


def make(path: Path | None, plan: Plan, outputs: Outputs, block: tuple[int, ...]) -> Store:
    """A store in which every cell is waiting."""
    if path is None:
        text = np.full(plan.shape, "", dtype=np.dtypes.StringDType())
        own = {"error": text, "status": np.full(plan.shape, WAITING, np.int8)}
        return Store(plan, outputs, block, outputs.empty(plan, plan.shape) | own)
    with appearing(path) as new:
        _create(new, plan, outputs, block)
    found = find(path, plan)  # another driver may have made it meanwhile: then it is that one's
    if found is None:
        raise ValueError(f"{path}: could not be made; choose another folder")
    return found


def _create(folder: Path, plan: Plan, outputs: Outputs, block: tuple[int, ...]) -> None:
    import zarr
    from zarr.codecs import ZstdCodec

    shapes = {name: [out.dims, out.shape, out.dtype.str] for name, out in outputs.arrays.items()}
    about = {"format": FORMAT, "version": VERSION, **plan.identity(), "axes": list(plan.axes)}
    about |= {"block": block, "outputs": shapes, "coords": list(outputs.coords)}
    about |= {"units": plan.units}
    about = json.loads(json.dumps(about))  # tuples are lists there
    about["checksum"] = sha256(canonical(about))
    group: Any = zarr.create_group(whole(folder), attributes=about)
    lead = () if plan.seeds is None else plan.seeds.shape
    packed: dict[str, Any] = {"compressors": ZstdCodec(level=1, checksum=True)}
    packed |= {"chunk_key_encoding": {"name": "default", "separator": "."}}
    unit = {name: {"units": word} for name, word in plan.units.items()}
    dims = tuple(_coords(plan))
    for name, out in outputs.arrays.items():
        group.create_array(
            name,
            shape=(*plan.shape, *lead, *out.shape),
            chunks=tuple(max(1, n) for n in (*block, *lead, *out.shape)),
            dtype=out.dtype,
            fill_value=missing(out.dtype),
            dimension_names=(*dims, *out.dims),
            attributes=unit.get(name),
            **packed,
        )
    own: dict[str, Any] = {
        "shape": plan.shape,
        "chunks": block,
        "dimension_names": tuple(plan.axes),
    }
    group.create_array("error", dtype="str", fill_value="", **own, **packed)
    group.create_array("status", dtype="i1", fill_value=WAITING, attributes=_FLAGS, **own, **packed)
    for name, x in {**_coords(plan), **outputs.coords}.items():
        kind = "str" if x.dtype.kind == "U" else x.dtype
        own = {"shape": x.shape, "chunks": x.shape, "dimension_names": (name,)}
        coordinate = group.create_array(
            name, dtype=kind, attributes=unit.get(name), **own, **packed
        )
        coordinate[:] = x.astype(object) if kind == "str" else x


# --- found on disk -------------------------------------------------------------------------------


def find(path: str | os.PathLike[str], plan: Plan) -> Store | None:
    """The store of this very plan, to go on with; None where there is nothing yet.

    ValueError for the store of another sweep, with the difference, and for anything else there.
    """
    folder = Path(os.path.realpath(path))
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return None
    about = _header(path)
    import zarr

    with readable(path):
        group: Any = zarr.open_group(whole(folder), mode="r+")
        other = list(_differences(about, group, plan))
        arrays = {
            name: Output(tuple(dims), tuple(shape), np.dtype(kind))
            for name, (dims, shape, kind) in about["outputs"].items()
        }
        if not other:
            _fits(group, plan, arrays)
        outputs = Outputs(arrays, {name: _axis(group, name) for name in about["coords"]})
        always = {"write_empty_chunks": True}  # a block of NaN is not a block that is missing
        found = {name: group[name].with_config(always) for name in (*arrays, "status")}
        found["error"] = group["error"]
    if other:
        raise ValueError(
            f"{path}: is of another sweep: {'; '.join(other)}. Choose another store for this one; "
            f"cy.open_sweep({str(path)!r}) reads what is there"
        )
    for name in (".", *found):
        sweep(folder / name)  # temporaries of a driver that was killed
    outputs.check_units(plan)
    _label(group, about, plan.units)
    return Store(plan, outputs, tuple(about["block"]), found, Path(path))


def _label(group: Any, about: Mapping[str, Any], units: Mapping[str, str]) -> None:
    """Units are words beside the numbers: new ones are written over those of the store."""
    there = about.get("units", {})
    new = {name: word for name, word in units.items() if there.get(name) != word}
    if not new:
        return
    for name in new:
        if name in group:
            group[name].update_attributes({"units": new[name]})
    about = {**about, "units": {**there, **new}}
    group.update_attributes({**about, "checksum": sha256(canonical(about))})


def _header(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The attributes of a store of ours; ValueError for anything else."""
    file = Path(path) / "zarr.json"
    try:
        about = parsed_json(read_bytes(file, _LARGEST_HEADER), str(file))["attributes"]
        if about["format"] != FORMAT or type(about["version"]) is not int:
            raise ValueError("of another format")
        stated = about.pop("checksum", None)
    except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError):
        raise ValueError(
            f"{path}: exists and is no store of a sweep; expected a folder that cy.sweep() made, "
            "or a new name"
        ) from None
    if about["version"] > VERSION:
        raise ValueError(
            f"{path}: written by a newer cynosure (format {about['version']}, this one reads "
            f"{VERSION}); upgrade with `pip install -U cynosure`"
        )
    if stated != sha256(canonical(about)):
        raise ValueError(f"{path}: zarr.json was changed since it was made; copy it again")
    return about


def _fits(group: Any, plan: Plan, outputs: Mapping[str, Output]) -> None:
    """ValueError unless the arrays are as large as plan and header say.

    Each has a file of its own that says so, which no checksum covers: a block written into a larger
    one would not end.
    """
    lead = () if plan.seeds is None else plan.seeds.shape
    shapes = {name: (*plan.shape, *lead, *out.shape) for name, out in outputs.items()}
    for name, shape in {**shapes, "status": plan.shape, "error": plan.shape}.items():
        if tuple(group[name].shape) != tuple(shape):
            raise ValueError(f"{name}: expected shape {tuple(shape)}, got {group[name].shape}")


def _axis(group: Any, name: str) -> np.ndarray:
    """The values along an axis; what is too long to be one is not read."""
    if math.prod(group[name].shape) > _LONGEST_AXIS:
        raise ValueError(f"{name}: expected an axis, got shape {group[name].shape}")
    return np.asarray(group[name][:])


def _differences(about: Mapping[str, Any], group: Any, plan: Plan) -> Any:
    """In words, what of the plan is not that of the store."""
    here = plan.identity()
    if about["cell"] != here["cell"]:
        yield f"its cell is {about['cell']}, not {here['cell']}"
    elif about["source"] != here["source"]:
        yield f"{here['cell']} has changed since: {_first_change(about['source'], here['source'])}"
    for name in sorted({*about["versions"], *here["versions"]}):
        there, now = about["versions"].get(name), here["versions"].get(name)
        if there != now:
            yield f"made with {name} {there}, this is {now}"
    if about["vectorized"] != here["vectorized"]:
        yield f"vectorized={about['vectorized']} there"
    if about["fixed"] != here["fixed"]:
        yield f"fixed are {about['fixed']} there, {here['fixed']} here"
    names = list(_coords(plan))
    held = about["axes"] + (["seed"] if about["vectorized"] else [])
    if held != names:
        yield f"its axes are {', '.join(held)}, not {', '.join(names)}"
        return
    for name, x in _coords(plan).items():
        there = _axis(group, name)
        there = there.astype(x.dtype) if x.dtype.kind == "U" else there
        if there.dtype != x.dtype or not np.array_equal(there, x):
            yield f"{name}: {_values(there)} there, {_values(x)} here"


def _values(x: np.ndarray) -> str:
    shown = [*x[:3].tolist(), "...", *x[-1:].tolist()] if len(x) > 4 else x.tolist()
    return f"{len(x)} values {', '.join(map(str, shown))}"


def _first_change(old: str, new: str) -> str:
    a, b = old.splitlines(), new.splitlines()
    k = next((k for k, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
    was, is_ = (lines[k].strip() if k < len(lines) else "(the end)" for lines in (a, b))
    return f"{was[:80]!r} is now {is_[:80]!r}"


def open_sweep(store: str | os.PathLike[str]) -> Any:
    """The xarray Dataset of a store that `sweep` made, read from it as it is asked for.

    It is not changed, whatever made it and however far it came: `status` is 0 for cells that wait,
    1 for those that are done, 2 for those that failed, whose message is `error`.
    """
    try:
        import xarray
        import zarr  # noqa: F401  (xarray would say so less clearly)
    except ImportError:
        raise ImportError(NEEDED) from None
    if not Path(store).exists():
        raise FileNotFoundError(f"{store}: no such store")
    about = _header(store)
    how: dict[str, Any] = {"engine": "zarr", "chunks": None, "consolidated": False}
    with readable(store):
        found = xarray.open_dataset(str(store), decode_cf=False, **how)
        names, units = list(about["outputs"]), about.get("units", {})
        return _told(found, names, about["fixed"], about["cell"], units)
