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
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ..._files import write_atomically
from ...classifier.soft_model import Schedule
from ._reviews import Ids, Split, split
from ._sentiment import Epoch, one_thread, soft_and_hard, train

__all__ = ["fit", "history_of", "main", "save"]


def save(folder: Path, name: str, history: dict[str, Any], weights: dict[str, Any]) -> None:
    """Write history and weights, each whole or not at all."""
    from safetensors.torch import save as packed

    text = json.dumps(history, indent=1).encode()
    data = packed({k: w.detach().cpu().contiguous() for k, w in weights.items()})
    write_atomically(folder / f"{name}.json", lambda stream: stream.write(text))
    write_atomically(folder / f"{name}.safetensors", lambda stream: stream.write(data))


def history_of(
    data: Split, dim: int, tokens: int, stop_words: bool, schedule: Schedule, epochs: list[Epoch]
) -> dict[str, Any]:
    """What the report needs to know of a run besides its weights."""
    return {
        "dim": dim,
        "tokens": tokens,
        "stop_words": stop_words,
        "words": len(data.words),
        "vocabulary": data.fingerprint,
        "reviews": [len(data.train), len(data.held), len(data.test)],
        "training": asdict(replace(schedule, device="")),
        "best_epoch": epochs[-1].best_epoch,
        "finished": epochs[-1].last,
        "epochs": [{"epoch": e.epoch, **e.scores} for e in epochs],
    }


def fit(
    data: Split,
    dim: int,
    tokens: int,
    stop_words: bool,
    schedule: Schedule,
    out: Path,
    *,
    deadline: float = float("inf"),
) -> dict[str, Any]:
    """Train one model and save it after every epoch; stops early at `deadline` (monotonic)."""
    soft, watch = soft_and_hard(data)
    name = f"d{dim}_n{tokens}" + ("" if schedule.seed == 0 else f"_s{schedule.seed}")
    epochs: list[Epoch] = []
    history: dict[str, Any] = {}
    began = time.monotonic()
    for done in train(data, dim, soft, schedule, watch):
        epochs.append(done)
        history = history_of(data, dim, tokens, stop_words, schedule, epochs)
        save(out, name, history, done.best)
        s = done.scores
        print(
            f"{name} epoch {done.epoch:3d}  train {s['train soft accuracy']:.4f}  held "
            f"{s['held loss']:.4f} {s['held accuracy']:.4f}  test soft "
            f"{s['test soft accuracy']:.4f} hard {s['test hard accuracy']:.4f}  alpha "
            f"{s['alpha']:.3f}  best {done.best_epoch}  {time.monotonic() - began:.0f} s",
            flush=True,
        )
        # one more epoch takes as long as the mean one so far
        pace = (time.monotonic() - began) / done.epoch
        if time.monotonic() + pace > deadline:
            print(f"{name}: out of time after epoch {done.epoch}", flush=True)
            break
    return history


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
    if given.out is None:
        return 0
    return _train(given)


def _train(given: argparse.Namespace) -> int:
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
    schedule = Schedule(
        given.epochs, given.rate, given.batch, given.clip, given.patience, given.seed, device
    )
    dims = [int(d) for d in given.dims.split(",")]
    for i, dim in enumerate(dims):
        now = time.monotonic()
        deadline = now + (end - now) / (len(dims) - i)  # what is left, shared by those to come
        with one_thread():
            fit(data, dim, given.tokens, given.stop_words, schedule, given.out, deadline=deadline)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
