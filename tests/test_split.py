"""One search divided among processes: two of them, over gloo, find what one finds."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import cynosure as cy
from cynosure.engine.kernels import candidates, reference_candidates, split, split_over
from cynosure.engine.kernels.split import joined

pytest.importorskip("torch")

PROGRAM = """
import sys
import numpy as np
import torch
import torch.distributed as dist
import cynosure as cy
from cynosure.engine.kernels import candidates, split_over
from cynosure.engine.kernels.device import device_candidates

rank, meeting, out = int(sys.argv[1]), sys.argv[2], sys.argv[3]
dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
sizes, plain = [], dist.all_gather_object
dist.all_gather_object = lambda every, mine, group: (sizes.append(len(mine[0])),
                                                     plain(every, mine, group=group))
z, q, slack = (np.load(f"{out}/{name}.npy") for name in ("z", "q", "slack"))
kept = {}
with split_over():
    for gap in (0, 1):
        here = candidates(q, z, slack, runner_up=bool(gap))
        there = device_candidates(*map(torch.from_numpy, (q, z, slack)), runner_up=bool(gap))
        for name, found in (("here", here), ("there", there)):
            kept |= {f"{name}_{gap}_{field}": x for field, x in found._asdict().items()}
    run = cy.simulate(cy.PureAttention(alpha=0.5), z, layers=20, save_every=20)
kept |= {"z": run.z, "leader": run.history.leader, "settled_at": run.history.settled_at}
assert len(sizes) >= 5 and set(sizes) <= {len(q) // 2, len(q) // 2 + 1}, sizes
np.savez(f"{out}/found_{rank}.npz", **kept)
"""


def test_two_processes_find_the_sets_of_one(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    z = np.vstack((rng.normal(size=(1300, 8)), rng.integers(-2, 3, (101, 8))))
    q = z @ np.linalg.qr(rng.normal(size=(8, 8)))[0]
    slack = 1e-13 * np.linalg.norm(q, axis=1) * np.linalg.norm(z, axis=1).max()
    for name, x in (("z", z), ("q", q), ("slack", slack)):
        np.save(tmp_path / f"{name}.npy", x)
    command = [sys.executable, "-c", PROGRAM]
    both = [
        subprocess.Popen([*command, str(rank), str(tmp_path / "meeting"), str(tmp_path)])
        for rank in range(2)
    ]
    try:
        assert [process.wait(timeout=240) for process in both] == [0, 0]
    finally:
        for process in both:
            process.kill()
    alone = cy.simulate(cy.PureAttention(alpha=0.5), z, layers=20, save_every=20)
    for rank in range(2):
        found = np.load(tmp_path / f"found_{rank}.npz")
        for gap in (False, True):
            right = candidates(q, z, slack, runner_up=gap)
            for where in ("here", "there"):
                for field in ("indptr", "indices"):
                    assert (found[f"{where}_{gap:d}_{field}"] == getattr(right, field)).all()
            assert (found[f"here_{gap:d}_gap"] == right.gap).all()
        assert (found["z"] == alone.z).all()
        assert (found["leader"] == alone.history.leader).all()
        assert (found["settled_at"] == alone.history.settled_at).all()


def test_parts_are_joined_in_order() -> None:
    z = np.array([[1.0, 1], [1, -1], [-1, 1], [-1, -1]])
    q = np.array([[1.0, 0], [0.0, 0], [1, 2], [0, -1], [3, 1]])
    whole = reference_candidates(q, z, np.zeros(5), runner_up=True)
    for cuts in ([0, 2, 5], [0, 0, 3, 5], [0, 1, 2, 3, 4, 5]):
        parts = [
            reference_candidates(q[a:b], z, np.zeros(b - a), runner_up=True)
            for a, b in pairwise(cuts)
        ]
        for mine, right in zip(joined(parts), whole, strict=True):
            assert (mine == right).all()


def test_a_split_without_processes_is_refused() -> None:
    with pytest.raises(RuntimeError, match="init_process_group"), split_over():
        pass
    assert split._group.get() is None
