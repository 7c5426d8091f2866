"""The picture of docs/scaling.md, from the store of `cynosure sweep sphere --store FOLDER`.

    python docs/phase_diagram.py FOLDER [OUT.png]

For each d the share of pairs of tokens that have met by time t, mean over the seeds, and the line
where n equiangular tokens from r = 0 would meet (docs/mathematics.md B31), which no sweep knows.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import cynosure as cy
from cynosure.theorems.sphere import equiangular

OUT = Path(__file__).resolve().parent / "sweeps" / "sphere.png"
MET = 1e-3  # of sweeps.cells.sphere_met


def draw(store: str | Path, out: Path = OUT) -> Path:
    data = cy.open_sweep(store)
    share, n = data["met"].mean("seed"), int(data["n"])
    betas, t = data["beta"].values, np.linspace(0, float(data["t"][-1]), 3001)
    reached = [equiangular(0.0, t, n, float(beta)) >= 1 - MET for beta in betas]
    meet = np.array([t[r.argmax()] if r[-1] else np.nan for r in reached])
    figure, (axes,) = cy.plot.sheet(1, data.sizes["d"], 3.2, 3.2, sharey=True)
    for ax, d in zip(axes, data["d"].values, strict=True):
        values = share.sel(d=d).transpose("beta", "t").values
        look = {"cmap": "cividis", "vmin": 0, "vmax": 1, "shading": "nearest", "rasterized": True}
        image = ax.pcolormesh(data["t"].values, betas, values, **look)
        ax.plot(meet, betas, color=cy.plot.PALETTE[1], lw=2)
        ax.set(xlim=(0, t[-1]), ylim=(betas[0], betas[-1]), xlabel="time t")
        ax.set_title(f"d = {d}, n = {n}", fontsize=cy.plot.LABEL)
    axes[0].set_ylabel(r"inverse temperature $\beta$")
    figure.colorbar(image, ax=axes, pad=0.01).set_label("pairs that have met", size=cy.plot.LABEL)
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=100, metadata={"Software": None})
    return out


if __name__ == "__main__":
    print(draw(sys.argv[1], *map(Path, sys.argv[2:3])))
