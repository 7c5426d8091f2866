"""The learned sentiment model of arXiv 2407.01602 on the full reviews, for a machine with a GPU.

    python -m cynosure.experiments.reviews._sentiment_gpu IDS.npz --from aclImdb.tar.gz
    python -m cynosure.experiments.reviews._sentiment_gpu IDS.npz --out DIR --dims 2,4,8,16
    cynosure run sentiment_paper --set data=IDS.npz --set results=DIR

The first works anywhere, the second needs NumPy and torch only, the third makes the report.

Each run leaves d<dim>_n<tokens>.json (the history, rewritten after every epoch) and .safetensors
(the weights of the best held-out epoch). Runs are independent: give each process its own --dims to
fill the GPU, since one alone waits for the launch of its many small kernels.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from ..._files import write_atomically
from ...classifier.soft_model import Schedule
from ._reviews import Ids, Split, split
from ._training import History, histories, one_thread


def fit(
    data: Split,
    dim: int,
    schedule: Schedule,
    out: Path,
    *,
    matrix: str = "I",
    watched: int = 0,
    deadline: float = float("inf"),
) -> History:
    """Train one model and save it after every epoch; stops early at `deadline` (monotonic)."""
    name = f"d{dim}_n{data.tokens}" + ("" if matrix == "I" else f"_{matrix}")
    name += "" if schedule.seed == 0 else f"_s{schedule.seed}"
    began = time.monotonic()
    for history, best in histories(data, dim, schedule, matrix=matrix, watched=watched):
        _save(out, name, history, best)
        now, passed = history["epochs"][-1], time.monotonic() - began
        print(
            f"{name} epoch {now['epoch']:3d}  train {now['train soft accuracy']:.4f}  held "
            f"{now['held loss']:.4f} {now['held accuracy']:.4f}  test soft "
            f"{now['test soft accuracy']:.4f} hard {now['test hard accuracy']:.4f}  alpha "
            f"{now['alpha']:.3f}  best {history['best_epoch']}  {passed:.0f} s",
            flush=True,
        )
        # one more epoch takes as long as the mean one so far
        if time.monotonic() + passed / now["epoch"] > deadline:
            print(f"{name}: out of time after epoch {now['epoch']}", flush=True)
            break
    return history


def _save(folder: Path, name: str, history: History, weights: dict[str, Any]) -> None:
    """Write history and weights, each whole or not at all."""
    from safetensors.torch import save

    text = json.dumps(history, indent=1).encode()
    data = save({k: w.detach().cpu().contiguous() for k, w in weights.items()})
    write_atomically(folder / f"{name}.json", lambda stream: stream.write(text))
    write_atomically(folder / f"{name}.safetensors", lambda stream: stream.write(data))


def main(argv: list[str] | None = None) -> int:
    """Number the words of an archive (--from), or train (--out)."""
    parser = argparse.ArgumentParser(
        prog="python -m cynosure.experiments.reviews._sentiment_gpu", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("ids", type=Path, help="file of word numbers, .npz")
    parser.add_argument("--from", dest="archive", help="aclImdb folder or .tar.gz to number")
    parser.add_argument("--longest", type=int, default=512, help="words of a review to number")
    parser.add_argument("--out", type=Path, help="folder for histories and weights")
    parser.add_argument("--dims", default="2,4,8,16")
    parser.add_argument("--matrix", default="I", help="A: I, or trained: spd or free; several by ,")
    parser.add_argument(
        "--watched", type=int, default=0, help="reviews of each part scored after an epoch; 0: all"
    )
    parser.add_argument("--tokens", type=int, default=128, help="words of a review that take part")
    parser.add_argument("--stop-words", action="store_true", help="keep the stop words")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop in time")
    parser.add_argument("--device", default="", help="cuda or cpu; by default what there is")
    for name in ("epochs", "batch", "patience", "seed"):
        parser.add_argument(f"--{name}", type=int, default=getattr(Schedule, name))
    for name in ("rate", "clip"):
        parser.add_argument(f"--{name}", type=float, default=getattr(Schedule, name))
    given = parser.parse_args(argv)
    if given.archive:
        from ...classifier.datasets import imdb

        parts = (imdb(given.archive, part) for part in ("train", "test"))
        Ids.of(*parts, longest=given.longest).save(given.ids)
        print(f"{given.ids}: {given.ids.stat().st_size / 1e6:.1f} MB")
    if given.out is not None:
        _train(given)
    return 0


@one_thread()
def _train(given: argparse.Namespace) -> None:
    import torch

    start = time.monotonic()
    end = start + 60 * given.minutes
    device = given.device or ("cuda" if torch.cuda.is_available() else "cpu")
    given.out.mkdir(parents=True, exist_ok=True)
    data = split(Ids.load(given.ids), tokens=given.tokens, stop_words=given.stop_words)
    print(
        f"{device}: {len(data.words)} words, {len(data.train)} + {len(data.held)} reviews to "
        f"train, {len(data.test)} to test; ready after {time.monotonic() - start:.0f} s",
        flush=True,
    )
    names = ("epochs", "rate", "batch", "clip", "patience", "seed")
    schedule = Schedule(**{name: getattr(given, name) for name in names}, device=device)
    dims = [int(d) for d in given.dims.split(",")]
    cells = [(dim, matrix) for matrix in given.matrix.split(",") for dim in dims]
    for i, (dim, matrix) in enumerate(cells):
        now = time.monotonic()
        deadline = now + (end - now) / (len(cells) - i)  # what is left, shared by those to come
        fit(data, dim, schedule, given.out, matrix=matrix, watched=given.watched, deadline=deadline)


if __name__ == "__main__":
    raise SystemExit(main())
