"""The store of a sweep: a zarr folder that xarray reads, one chunk for each block of cells.

Each array of a block is one chunk, put in place in one rename; the chunk of the status comes last.
A block that was cut short, or of which a file is missing or damaged (`standing`: zarr would read
fill values), counts as waiting and is computed again to the same bits.
"""

from __future__ import annotations

import json
import math
import os
import re
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, final

import numpy as np

from .. import __version__
from .._files import parsed_json, read_bytes, sweep
from .._files.folders import canonical, sha256
from .._files.stores import appearing, readable, whole
from .plan import DONE, FAILED, MEANING, WAITING, Output, Outputs, Plan, missing

__all__ = ["Store", "find", "make", "open_sweep", "standing"]

FORMAT, VERSION = "cynosure-sweep", 1
_LARGEST_HEADER = 64 << 20  # bytes
_LONGEST_AXIS = 1 << 24  # values
_MOST_CELLS = 1 << 31
_CHECKED = 256 << 20  # bytes of a store whose files are all read when it is opened
NEEDED = 'sweeps need xarray and zarr: pip install "cynosure[scale]"'


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
        corner = map(int, np.unravel_index(number, self._counts))
        return _places(corner, self.block, self.plan.shape)

    @property
    def blocks(self) -> int:
        """How many there are."""
        return math.prod(self._counts)

    @property
    def _counts(self) -> tuple[int, ...]:
        return tuple(-(-n // step) for n, step in zip(self.plan.shape, self.block))

    def write(self, place: tuple[slice, ...], values: Mapping[str, np.ndarray]) -> None:
        """A whole block; the status last."""
        for name in (*self.outputs.arrays, "error", "status"):
            self.arrays[name][place] = values[name]

    def standing(self) -> np.ndarray:
        """The status of every cell; damaged blocks count as waiting, with a warning."""
        if self.path is None:
            return np.array(self.arrays["status"])
        folder, plan = Path(os.path.realpath(self.path)), self.plan
        arrays = self.outputs.arrays
        status, lost = standing(folder, self.block, plan.shape, arrays, len(plan.lead))
        _warn(self.path, lost, "what they held is computed again")
        return status

    def read(self, place: tuple[slice, ...]) -> dict[str, np.ndarray]:
        """The arrays of a block, to be changed and written again."""
        with readable(self.path):
            error = np.array(self.arrays["error"][place], dtype=object)
            return {name: np.array(x[place]) for name, x in self.arrays.items()} | {"error": error}

    def dataset(self) -> Any:
        """As an xarray Dataset: read from the disk as it is asked for, or what is in memory."""
        if self.path is not None:
            return open_sweep(self.path)
        import xarray

        axes, coords = tuple(self.plan.axes), {**_coords(self.plan), **self.outputs.coords}
        data = {name: (axes, self.arrays[name]) for name in ("status", "error")}
        for name, out in self.outputs.arrays.items():
            data[name] = ((*_coords(self.plan), *out.dims), self.arrays[name])
        found = xarray.Dataset(data, coords=coords)
        found["status"].attrs = _FLAGS
        about = {"cell": self.plan.name, "fixed": self.plan.fixed, **_made(self.plan)}
        return _told(found, self.outputs.arrays, about)


_FLAGS: dict[str, Any] = {"flag_values": [WAITING, DONE, FAILED], "flag_meanings": MEANING}


def _coords(plan: Plan) -> dict[str, np.ndarray]:
    return plan.axes if plan.seeds is None else {**plan.axes, "seed": plan.seeds}


def _told(found: Any, names: Iterable[str], about: Mapping[str, Any]) -> Any:
    """The Dataset in our order, with the fixed parameters as coordinates of no dimension."""
    found = found[[*names, "status", "error"]].assign_coords(about["fixed"])
    told = ("cell", "cynosure_version", "created", "seed_law", "command")
    found.attrs = {name: about[name] for name in told if name in about}
    for name, unit in about.get("units", {}).items():
        found[name].attrs["units"] = unit
    return found


# --- damage --------------------------------------------------------------------------------------


def standing(
    folder: Path, block: tuple[int, ...], shape: tuple[int, ...], arrays: Mapping[str, Output],
    lead: int = 0, deep: bool = True,
) -> tuple[np.ndarray, list[str]]:  # fmt: skip
    """(the status of every cell, the files that are missing or damaged).

    Contents are compared with their checksums if `deep`, or where that is little to read; else
    files are only looked for. `lead`: how many axes of seeds follow those of the cells.
    """
    held = {name: _sizes(folder / name) for name in ("status", *arrays, "error")}  # as written last
    deep = deep or sum(sum(sizes.values()) for sizes in held.values()) <= _CHECKED
    more = {name: lead + len(out.shape) for name, out in arrays.items() if 0 not in out.shape}
    if math.prod(shape) > _MOST_CELLS:
        raise ValueError(f"status: expected at most {_MOST_CELLS} cells, got shape {shape}")
    status, lost = np.full(shape, WAITING, np.int8), []
    for key in filter(re.compile(rf"c(\.\d+){{{len(shape)}}}").fullmatch, held["status"]):
        index = map(int, key.split(".")[1:])
        content = _content(folder / "status" / key)
        if content is None or len(content) != math.prod(block):
            lost.append(f"status/{key}")
            continue
        place = _places(index, block, shape)
        inside = tuple(slice(0, part.stop - part.start) for part in place)
        here = np.frombuffer(content, np.int8).reshape(block)[inside]
        if (here == WAITING).all():
            continue
        files = [(name, key + ".0" * axes) for name, axes in more.items()]
        if (here == FAILED).any():  # messages that are all empty have no file
            files.append(("error", key))
        bad = [
            f"{name}/{file}"
            for name, file in files
            if not held[name].get(file) or (deep and _content(folder / name / file) is None)
        ]
        lost += bad
        if not bad:
            status[place] = here
    return status, lost


def _places(
    corner: Iterable[int], block: tuple[int, ...], shape: tuple[int, ...]
) -> tuple[slice, ...]:
    """The cells of the block in that row, column, ... of blocks."""
    return tuple(slice(k * b, min((k + 1) * b, n)) for k, b, n in zip(corner, block, shape))


def _sizes(folder: Path) -> dict[str, int]:
    with os.scandir(folder) as entries:
        return {entry.name: entry.stat().st_size for entry in entries}


def _content(file: Path) -> bytes | None:
    """What the file unpacks to; None where it is cut or its checksum is another."""
    from numcodecs.zstd import Zstd  # type: ignore[import-untyped]

    try:
        return bytes(Zstd().decode(file.read_bytes()))
    except (FileNotFoundError, RuntimeError, ValueError):
        return None


def _warn(path: object, lost: list[str], then: str) -> None:
    if lost:
        more = f" and {len(lost) - 1} other files" if len(lost) > 1 else ""
        said = f"{path}: {lost[0]}{more} are missing or damaged; {then}"
        warnings.warn(said if more else said.replace(" are ", " is "), UserWarning, stacklevel=4)


# --- in memory, or new on disk -------------------------------------------------------------------


def make(path: Path | None, plan: Plan, outputs: Outputs, block: tuple[int, ...]) -> Store:
    """A store in which every cell is waiting."""
    if path is None:
        text = np.full(plan.shape, "", dtype=np.dtypes.StringDType())
        return Store(plan, outputs, block, outputs.empty(plan, plan.shape) | {"error": text})
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
    about |= {**_made(plan), "created": datetime.now(UTC).isoformat("T", "seconds")}
    about = json.loads(json.dumps(about))  # tuples are lists there
    about["checksum"] = sha256(canonical(about))
    group: Any = zarr.create_group(whole(folder), attributes=about)
    unit = {name: {"units": word} for name, word in plan.units.items()}
    packed: dict[str, Any] = {"compressors": ZstdCodec(level=1, checksum=True)}
    packed |= {"chunk_key_encoding": {"name": "default", "separator": "."}}

    def create(name: str, shape: Any, chunks: Any, dims: Iterable[str], **how: Any) -> Any:
        at = {"shape": tuple(shape), "chunks": tuple(max(1, n) for n in chunks)}
        names = {"dimension_names": tuple(dims), "attributes": unit.get(name)}
        return group.create_array(name, **at, **names | how, **packed)

    for name, out in outputs.arrays.items():
        shape, chunks = ((*x, *plan.lead, *out.shape) for x in (plan.shape, block))
        how: dict[str, Any] = {"dtype": out.dtype, "fill_value": missing(out.dtype)}
        create(name, shape, chunks, (*_coords(plan), *out.dims), **how)
    create("error", plan.shape, block, plan.axes, dtype="str", fill_value="")
    how = {"dtype": "i1", "fill_value": WAITING, "attributes": _FLAGS}
    create("status", plan.shape, block, plan.axes, **how)
    for name, x in {**_coords(plan), **outputs.coords}.items():
        text = x.dtype.kind == "U"
        made = create(name, x.shape, x.shape, (name,), dtype="str" if text else x.dtype)
        made[:] = x.astype(object) if text else x
    _consolidate(folder)


def _made(plan: Plan) -> dict[str, Any]:
    """What a Dataset says of how it was made."""
    sizes = ", ".join(f"{name}: {len(x)} values" for name, x in _coords(plan).items())
    seeded = "the cell is given seed=s; all chance is its own"
    law = seeded if "seed" in _coords(plan) else "none"
    command = f"cynosure.sweep({plan.name}, {{{sizes}}})"
    made = {"cynosure_version": __version__, "seed_law": law, "command": command}
    return {"units": plan.units, **made}


def _consolidate(folder: Path) -> None:
    """All metadata in one file too, which other programs look for; our own readers do not."""
    import zarr

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that not every program knows it
        zarr.consolidate_metadata(whole(folder))


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
        group: Any = zarr.open_group(whole(folder), mode="r+", use_consolidated=False)
        other, arrays = list(_differences(about, group, plan)), _outputs(about)
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
    for name in ("..", ".", *found):
        sweep(folder / name)  # temporaries of a driver that was killed
    outputs.check_units(plan)
    _label(folder, group, about, plan.units)
    return Store(plan, outputs, tuple(about["block"]), found, Path(path))


def _label(folder: Path, group: Any, about: Mapping[str, Any], units: Mapping[str, str]) -> None:
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
    _consolidate(folder)


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


def _outputs(about: Mapping[str, Any]) -> dict[str, Output]:
    return {
        name: Output(tuple(dims), tuple(shape), np.dtype(kind))
        for name, (dims, shape, kind) in about["outputs"].items()
    }


def _fits(group: Any, plan: Plan, outputs: Mapping[str, Output]) -> None:
    """ValueError unless the arrays are as large as plan and header say: no checksum covers that."""
    shapes = {name: (*plan.shape, *plan.lead, *out.shape) for name, out in outputs.items()}
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
    """Opens a store that `sweep` made. The data are read lazily, and the store is never changed.

    Parameters
    ----------
    store
        The folder.

    Returns
    -------
    xarray.Dataset
        `status` is 0 for cells that wait, 1 for those done, 2 for those that failed; `error` has
        their messages.

    Raises
    ------
    ValueError
        If the folder is no such store.

    Examples
    --------
    >>> import cynosure as cy, os, tempfile
    >>> from cynosure.sweeps.cells import leaders
    >>> store = os.path.join(tempfile.mkdtemp(), "leaders.zarr")
    >>> ds = cy.sweep(leaders, {"d": [1, 2], "n": 10}, seeds=2, store=store)
    >>> cy.open_sweep(store)["status"].values.tolist()
    [[1, 1], [1, 1]]
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
        found = _told(found, about["outputs"], about)
        block, shape, lead = tuple(about["block"]), found["status"].shape, int(about["vectorized"])
        status, lost = standing(Path(store), block, shape, _outputs(about), lead, deep=False)
    if lost:
        _warn(store, lost, "its cells count as waiting, start the sweep again to compute them")
        found["status"] = found["status"].copy(data=status)
    return found
