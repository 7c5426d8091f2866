"""Train the sentiment model of arXiv 2407.01602 with its authors' protocol, several seeds at once.

    python train.py REVIEWS.npz --d 2 --seeds 0-10 --out d2.json
    python train.py REVIEWS.npz --d 2 --masked --out d2_masked.json

REVIEWS.npz holds `ids` (reviews x 128, rows of the embedding, 0 pads) and `label`. Each seed has
its own split (70 % to train on) and its own start. Needs NumPy and torch; a GPU makes it 50 times
faster. The history is written every five epochs, so that an interrupted run keeps what it has.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

BATCH, TOKENS, TEMPERATURE, DEPTH = 64, 128, 1e-3, 8
EVERY = 500  # reviews of the test part that are read at once


class Models:
    """One model for each seed, trained side by side."""

    def __init__(self, data: Any, d: int, seeds: list[int], masked: bool, device: str) -> None:
        self.ids = torch.as_tensor(data["ids"].astype(np.int64)).to(device)
        self.label = torch.as_tensor(data["label"].astype(np.float32)).to(device)
        self.d, self.masked, self.seeds, self.device = d, masked, seeds, device
        count, rows = len(self.ids), int(self.ids.max()) + 1
        orders = [np.random.default_rng(seed).permutation(count) for seed in seeds]
        mixed = torch.as_tensor(np.stack(orders)).to(device)
        self.train, self.test = mixed[:, : int(0.7 * count)], mixed[:, int(0.7 * count) :]
        starts: tuple[list[torch.Tensor], ...] = ([], [], [])
        for seed in seeds:
            torch.manual_seed(seed)
            starts[0].append(torch.nn.Embedding(rows, d).weight.detach())
            decoder = torch.nn.Linear(d, 1)
            starts[1].append(decoder.weight.detach()[0])
            starts[2].append(decoder.bias.detach()[0])
        weights = [torch.stack(x).to(device).requires_grad_() for x in starts]
        self.embedding, self.decoder, self.bias = weights
        self.alpha = torch.ones(len(seeds), device=device, requires_grad=True)
        self.weights = [*weights, self.alpha]
        self.first = (torch.arange(len(seeds), device=device) * rows)[:, None, None]

    def decide(self, reviews: torch.Tensor) -> torch.Tensor:
        """Log-odds; `reviews` holds a row of review numbers for each seed."""
        ids = self.ids[reviews]
        z = F.embedding((ids + self.first).flatten(), self.embedding.flatten(0, 1))
        z = z.view(*ids.shape, self.d)
        z = F.pad(z, (0, -self.d % 8))  # the fused attention wants a multiple of 8 columns
        share = (self.alpha / (1 + self.alpha)).view(-1, 1, 1, 1)
        bias = None
        real = ids > 0
        if self.masked:
            bias = torch.where(real, 0.0, -1e30)[:, :, None].expand(-1, -1, TOKENS, -1)
        for _ in range(DEPTH):
            pull = F.scaled_dot_product_attention(z, z, z, attn_mask=bias, scale=1 / TEMPERATURE)
            z = z + share * (pull - z)
        z = z[..., : self.d]
        if self.masked:
            counted = real[..., None].float()
            mean = (z * counted).sum(2) / counted.sum(2).clamp_min(1)
        else:
            mean = z.mean(2)
        return torch.einsum("sbd,sd->sb", mean, self.decoder) + self.bias[:, None]

    def scored(self, reviews: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Loss and correctness of each review."""
        odds, label = self.decide(reviews), self.label[reviews]
        loss = F.binary_cross_entropy_with_logits(odds, label, reduction="none")
        return loss, ((odds > 0) == (label > 0)).float()

    @torch.no_grad()
    def tested(self) -> list[float]:
        right = [self.scored(part)[1] for part in self.test.split(EVERY, dim=1)]
        accuracy: list[float] = torch.cat(right, 1).mean(1).tolist()
        return accuracy


class Step:
    """One step of Adam on fixed buffers; on a GPU it is recorded once and replayed."""

    def __init__(self, models: Models) -> None:
        self.models = models
        self.reviews = torch.zeros(
            len(models.seeds), BATCH, dtype=torch.int64, device=models.device
        )
        self.right = torch.zeros(len(models.seeds), device=models.device)
        on_gpu = models.device == "cuda"
        self.adam = torch.optim.Adam(models.weights, lr=1e-3, capturable=on_gpu)
        self.graph = self._recorded() if on_gpu else None

    def __call__(self, reviews: torch.Tensor) -> None:
        self.reviews.copy_(reviews)
        if self.graph is None:
            self._compute()
        else:
            self.graph.replay()

    def _compute(self) -> None:
        self.adam.zero_grad(set_to_none=False)
        loss, right = self.models.scored(self.reviews)
        loss.mean(1).sum().backward()
        self.adam.step()
        self.right += right.mean(1)

    def _recorded(self) -> torch.cuda.CUDAGraph:
        """A graph wants a few steps before it is recorded; they are taken back."""
        before = [w.detach().clone() for w in self.models.weights]
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                self._compute()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._compute()
        with torch.no_grad():
            for weight, old in zip(self.models.weights, before, strict=True):
                weight.copy_(old)
            for state in self.adam.state.values():
                for value in state.values():
                    value.zero_()
        return graph


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("reviews", type=Path)
    parser.add_argument("--d", type=int, default=2)
    parser.add_argument("--seeds", default="0-2", metavar="FIRST-LAST")
    parser.add_argument("--masked", action="store_true", help="padding takes no part")
    parser.add_argument("--epochs", type=int, default=101)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop in time")
    given = parser.parse_args()
    began = time.monotonic()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    first, last = map(int, given.seeds.split("-"))
    seeds = list(range(first, last + 1))
    models = Models(np.load(given.reviews), given.d, seeds, given.masked, device)
    step = Step(models)
    draw = torch.Generator(device=device).manual_seed(7)
    history: list[dict[str, Any]] = []
    count = models.train.shape[1]
    for epoch in range(1, given.epochs + 1):
        step.right.zero_()
        order = torch.stack([torch.randperm(count, generator=draw, device=device) for _ in seeds])
        batches = models.train.gather(1, order).split(BATCH, dim=1)[: count // BATCH]
        for reviews in batches:
            step(reviews)
        history.append(
            {
                "epoch": epoch,
                "train": (step.right / len(batches)).tolist(),
                "test": models.tested(),
                "alpha": models.alpha.tolist(),
            }
        )
        passed = time.monotonic() - began
        out_of_time = passed + 1.5 * passed / epoch > given.seconds
        print(epoch, f"{passed:.0f} s", history[-1]["test"], history[-1]["alpha"], flush=True)
        if epoch % 5 == 0 or epoch == given.epochs or out_of_time:
            given.out.write_text(json.dumps({"seeds": seeds, "epochs": history}))
        if out_of_time:
            break


if __name__ == "__main__":
    main()
