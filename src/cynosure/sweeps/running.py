"""sweep(): a cell computed on every point of a grid, into a store that resumes where it stopped."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, final

import numpy as np

from .._files.stores import readable
from .._progress import Progress, showing
from .engines import Lost, finished
from .plan import DONE, FAILED, WAITING, Outputs, Plan, Rows, block_shape, compute, rows, said
from .store import NEEDED, Store, find, make

__all__ = ["sweep"]

SECONDS = 0.5  # of a block, which is a task: the scheduler's millisecond does not show
MOST_CELLS, MOST_BYTES = 1 << 16, 64 << 20  # of a block
ENOUGH = 0.2  # seconds of cells that say how long one takes
TRIED, PATIENCE = 32, 60.0  # cells tried at most; seconds of one that need no second opinion


def sweep(
    cell: Any,
    grid: Any,
    seeds: Iterable[Any] | int | None = None,
    *,
    store: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    client: Any = None,
    vectorized: bool = False,
    units: Any = None,
    retry_failed: bool = False,
    progress: Progress = None,
) -> Any:
    """Evaluates a function on a grid of parameters, with seeds.

    Trap: the function must depend on its arguments alone. A failed cell holds NaN, or 0 in an array
    of whole numbers: select by `status`. BLAS has one thread wherever a cell runs.

    Parameters
    ----------
    cell
        A function of its grid coordinates and `seed`, as keywords. It returns a dict of numbers and
        arrays of fixed shape. (dims, array) names the dimensions of an array, and {"t": ("t",
        times)} is their coordinate, the same in all cells.
    grid
        Names and their values, numbers or texts. A single value is passed to every cell.
    seeds
        The seeds; 16 is range(16). Without seeds the cell takes none.
    store
        A Zarr folder. Each finished block is written into it. The same call again computes what is
        missing, and the result is the same to the bit.
    workers, client
        Processes of this machine, or a Dask client, instead of this process.
    vectorized
        One call gets the array of all seeds; its arrays begin with their axis.
    units
        Units of axes and results, {"t": "seconds"}, for plots.
    retry_failed
        Computes failed cells again.
    progress
        None shows a bar after a second, False never. A function is called with the share done.

    Returns
    -------
    xarray.Dataset
        `status` is 0 for cells that wait, 1 for those done, 2 for those that failed; `error` has
        their messages. A cell that raises stops nothing; a warning counts those that failed.

    Raises
    ------
    ValueError
        If an argument does not fit, or the store is of another grid, cell or version.

    Examples
    --------
    >>> import cynosure as cy
    >>> from cynosure.sweeps.cells import leaders
    >>> ds = cy.sweep(leaders, {"d": [1, 4], "n": 20}, seeds=4)
    >>> ds["first"].mean("seed").values.tolist()[0]
    2.0
    """
    try:
        import xarray  # noqa: F401
        import zarr  # noqa: F401
    except ImportError:
        raise ImportError(NEEDED) from None
    if workers is not None and (isinstance(workers, bool) or workers < 1):
        raise ValueError(f"workers: expected a number of processes, got {workers!r}")
    if workers is not None and client is not None:
        raise ValueError("workers are processes of this machine, client is a cluster: choose one")
    plan = Plan.of(cell, grid, seeds, vectorized, units)
    path = None if store is None else Path(store)
    known: dict[int, Rows] = {}
    found = None if path is None else find(path, plan)
    if found is None:
        outputs, known, seconds = _sampled(plan)
        outputs.check_units(plan)
        block = block_shape(plan.shape, _cells(plan, outputs, seconds))
        try:
            found = make(path, plan, outputs, block)
        except OSError as error:
            raise _unwritten(error, path, "the store cannot be made") from error
    waiting = _Waiting(found, known, retry_failed)
    done, total, work = 0, len(waiting), partial(compute, plan, found.outputs)
    lost: list[str] = []
    try:
        with showing(progress, "sweeping", 1.0) as tell:
            for number, result in finished(work, waiting, workers, client):
                if isinstance(result, Lost):
                    lost.append(f"at {plan.in_words(int(waiting[number][0]))}: {result.reason}")
                else:
                    waiting.enter(number, result)
                done += 1
                if tell is not None:
                    tell(done / total, f"block {done} of {total}")
        if lost:
            raise RuntimeError(f"{len(lost)} of {total} blocks could not be computed, {lost[0]}")
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"interrupted; {waiting.how_to_go_on()}") from None
    except RuntimeError as error:
        raise RuntimeError(f"{error}; {waiting.how_to_go_on()}") from error
    except OSError as error:
        raise _unwritten(error, path, waiting.how_to_go_on()) from error
    made = found.dataset()
    if (failed := waiting.status == FAILED).any():  # their NaN would be seen in a plot only
        where = plan.in_words(int(np.flatnonzero(failed)[0]))
        said = made["error"].values[failed][0]
        text = f"{failed.sum()} of {failed.size} cells failed, the first at {where}: {said}"
        warnings.warn(text, UserWarning, stacklevel=3)
    return made


def _unwritten(error: OSError, path: Path | None, what: str) -> OSError:
    """The error of a file of the store, a temporary one perhaps, as one of the store."""
    if error.errno is None or path is None:
        return error
    return OSError(error.errno, f"{os.strerror(error.errno)}; {what}", str(path))


@final
class _Waiting(Mapping[int, np.ndarray]):
    """Block -> the numbers of its cells that are to be computed; `known` are computed already."""

    def __init__(self, store: Store, known: dict[int, Rows], retry_failed: bool) -> None:
        self.store, self.known = store, known
        with readable(store.path):
            self.status = store.standing()
        self.wanted = self.status != DONE if retry_failed else self.status == WAITING
        self.numbers = [k for k in range(store.blocks) if self.wanted[store.place(k)].any()]

    def __len__(self) -> int:
        return len(self.numbers)

    def __iter__(self) -> Iterator[int]:
        return iter(self.numbers)

    def __getitem__(self, number: int) -> np.ndarray:
        return np.array([i for i in self._cells(number) if i not in self.known], dtype=np.int64)

    def _cells(self, number: int) -> list[int]:
        place = self.store.place(number)
        among = np.flatnonzero(self.wanted[place])
        corner = [np.arange(part.start, part.stop) for part in place]
        numbers = np.ravel_multi_index(np.meshgrid(*corner, indexing="ij"), self.wanted.shape)
        return numbers.ravel()[among].tolist()

    def enter(self, number: int, found: Rows) -> None:
        """The block into the store, beside what it holds already."""
        store, place, cells = self.store, self.store.place(number), self._cells(number)
        wanted, old = self.wanted[place], self.status[place]
        if (old == WAITING).all():
            values = store.outputs.empty(store.plan, old.shape)
        else:  # tried again: a kill from here on leaves them waiting, not failed with numbers
            store.arrays["status"][place] = np.where(wanted, WAITING, old).astype(np.int8)
            values = store.read(place)
        new = iter(range(len(found["status"])))
        for at, i in zip(np.argwhere(wanted), cells):
            part, k = (self.known[i], 0) if i in self.known else (found, next(new))
            where = tuple(at)
            for name, x in part.items():
                values[name][where] = x[k]
        store.write(place, values)
        self.status[place] = values["status"]

    def how_to_go_on(self) -> str:
        """Where the sweep stands, in words."""
        done = f"{int((self.status != WAITING).sum())} of {self.status.size} cells"
        if self.store.path is None:
            return f"{done} were done, and are lost; with store=... they would stay"
        return f"{done} are in {self.store.path}; start the same again to go on"


def _sampled(plan: Plan) -> tuple[Outputs, dict[int, Rows], float]:
    """(what a cell gives, cells computed for that, seconds of one), from cells all over the grid.

    The first cell that can be computed says what all must give: which one that is does not depend
    on time. The next ones say how long a cell takes; the first one may have compiled or imported.
    """
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    order, why = _spread(plan.size), ""
    with threadpool_limits(1):
        for i in order:
            began = time.perf_counter()
            try:
                found = plan.cell(**plan.call(i))
                outputs = Outputs.like(plan, found)
                one = {"status": np.int8(DONE), "error": "", **outputs.fit(plan, found)}
            except (Exception, SystemExit) as error:
                why = why or f"{plan.in_words(i)}: {said(error)}"
                continue
            break
        else:
            raise ValueError(f"cell: none of the cells tried could be computed; {why}")
        known = {i: {name: np.asarray(x)[None] for name, x in one.items()}}
        seconds = [time.perf_counter() - began]
        for i in order if seconds[0] < PATIENCE else ():
            began = time.perf_counter()
            known[i] = rows(plan, outputs, [i])
            seconds.append(time.perf_counter() - began)
            if sum(seconds[1:]) > ENOUGH:
                break
    return outputs, known, float(np.mean(seconds[1:] or seconds))


def _spread(size: int) -> Iterator[int]:
    """Some of 0..size-1, each once: the ends, the middle, the quarters, ..."""
    halves = ((2 * k + 1) / 2**m for m in range(1, 20) for k in range(2 ** (m - 1)))
    places = [0, size - 1, *(int(size * share) for share in islice(halves, 4 * TRIED))]
    return islice(dict.fromkeys(places), TRIED)


def _cells(plan: Plan, outputs: Outputs, seconds: float) -> int:
    """How many cells a block has, so that it is a task of SECONDS."""
    size = sum(x.nbytes for x in outputs.empty(plan, (1,)).values())
    return max(1, min(int(SECONDS / max(seconds, 1e-9)), MOST_CELLS, MOST_BYTES // max(size, 1)))
