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
from ._sentiment import Ids, Step, Task, Training, Variant, one_thread, task, train

__all__ = ["fit", "main", "save"]


def save(folder: Path, name: str, history: dict[str, Any], weights: dict[str, Any]) -> None:
    """Write history and weights, each whole or not at all."""
    from safetensors.torch import save as packed

    text = json.dumps(history, indent=1).encode()
    data = packed({k: w.detach().cpu().contiguous() for k, w in weights.items()})
    write_atomically(folder / f"{name}.json", lambda stream: stream.write(text))
    write_atomically(folder / f"{name}.safetensors", lambda stream: stream.write(data))


def history_of(
    data: Task, dim: int, tokens: int, stop_words: bool, settings: Training, steps: list[Step]
) -> dict[str, Any]:
    """What the report needs to know of a run besides its weights."""
    return {
        "dim": dim,
        "tokens": tokens,
        "stop_words": stop_words,
        "words": len(data.words),
        "vocabulary": data.fingerprint,
        "reviews": [len(data.kept), len(data.held), len(data.test)],
        "training": asdict(replace(settings, device="")),
        "best_epoch": steps[-1].best_epoch,
        "finished": steps[-1].last,
        "epochs": [{"epoch": s.epoch, **s.measured} for s in steps],
    }


def fit(
    data: Task,
    dim: int,
    tokens: int,
    stop_words: bool,
    settings: Training,
    out: Path,
    *,
    deadline: float = float("inf"),
) -> dict[str, Any]:
    """Train one model and keep it after every epoch; stops early at `deadline` (monotonic)."""
    soft = Variant()
    watch = {
        "train soft": (data.kept, soft),
        "train hard": (data.kept, soft.hard),
        "test soft": (data.test, soft),
        "test hard": (data.test, soft.hard),
    }
    name = f"d{dim}_n{tokens}" + ("" if settings.seed == 0 else f"_s{settings.seed}")
    steps: list[Step] = []
    history: dict[str, Any] = {}
    began = time.monotonic()
    for step in train(data, dim, soft, settings, watch):
        steps.append(step)
        history = history_of(data, dim, tokens, stop_words, settings, steps)
        save(out, name, history, step.best)
        m = step.measured
        print(
            f"{name} epoch {step.epoch:3d}  train {m['train soft accuracy']:.4f}  held "
            f"{m['held loss']:.4f} {m['held accuracy']:.4f}  test soft "
            f"{m['test soft accuracy']:.4f} hard {m['test hard accuracy']:.4f}  alpha "
            f"{m['alpha']:.3f}  best {step.best_epoch}  {time.monotonic() - began:.0f} s",
            flush=True,
        )
        # one more epoch takes as long as the mean one so far
        pace = (time.monotonic() - began) / step.epoch
        if time.monotonic() + pace > deadline:
            print(f"{name}: out of time after epoch {step.epoch}", flush=True)
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
    parser.add_argument("--longest", type=int, default=512, help="words kept of a review")
    parser.add_argument("--out", type=Path, help="folder for histories and weights")
    parser.add_argument("--dims", default="2,4,8,16")
    parser.add_argument("--tokens", type=int, default=128, help="words of a review that take part")
    parser.add_argument("--stop-words", action="store_true", help="keep the stop words")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop in time")
    parser.add_argument("--device", default="", help="cuda or cpu; by default what there is")
    for name in ("epochs", "batch", "patience", "seed"):
        parser.add_argument(f"--{name}", type=int, default=getattr(Training, name))
    for name in ("rate", "clip"):
        parser.add_argument(f"--{name}", type=float, default=getattr(Training, name))
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
    data = task(Ids.load(given.ids), tokens=given.tokens, stop_words=given.stop_words)
    print(
        f"{device}: {len(data.words)} words, {len(data.kept)} + {len(data.held)} reviews to train, "
        f"{len(data.test)} to test; ready after {time.monotonic() - start:.0f} s",
        flush=True,
    )
    settings = Training(
        given.epochs, given.rate, given.batch, given.clip, given.patience, seed=given.seed,
        device=device,
    )  # fmt: skip
    dims = [int(d) for d in given.dims.split(",")]
    for i, dim in enumerate(dims):
        now = time.monotonic()
        deadline = now + (end - now) / (len(dims) - i)  # what is left, shared by those to come
        with one_thread():
            fit(data, dim, given.tokens, given.stop_words, settings, given.out, deadline=deadline)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
