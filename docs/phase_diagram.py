"""The pictures of docs/explanation/phase-diagrams.md, each from the store of a sweep.

    cynosure sweep NAME --store FOLDER
    python docs/phase_diagram.py FOLDER [OUT.png]

Which one is drawn is read off the store. Beside the picture its controls are printed: what was
swept against what the cells do not know, and against a formula that must not fit.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

import cynosure as cy
from cynosure.theorems import expected_leaders
from cynosure.theorems.sphere import equiangular

HERE = Path(__file__).resolve().parent / "sweeps"
MET = 1e-3  # of sweeps.cells.sphere_met
HALF = 0.5  # of the pairs, of the way: where a border is drawn


def _map(ax: Any, x: np.ndarray, y: np.ndarray, values: np.ndarray, top: float = 1.0) -> Any:
    """Values (y, x) as colours from 0 to `top`."""
    look = {"cmap": "cividis", "vmin": 0, "vmax": top, "shading": "nearest", "rasterized": True}
    return ax.pcolormesh(x, y, values, **look)


def _bar(figure: Any, image: Any, axes: Any, label: str) -> None:
    figure.colorbar(image, ax=axes, pad=0.01).set_label(label, size=cy.plot.LABEL)


# --- tokens that meet on the sphere --------------------------------------------------------------


def meeting(n: int, betas: np.ndarray, until: float) -> np.ndarray:
    """When n equiangular tokens from r = 0 would have met (B31), NaN for later than `until`."""
    t = np.linspace(0, until, 3001)
    reached = [equiangular(0.0, t, n, float(beta)) >= 1 - MET for beta in betas]
    return np.array([t[r.argmax()] if r[-1] else np.nan for r in reached])


def half_met(share: np.ndarray, t: np.ndarray) -> np.ndarray:
    """The first saved time at which half of the pairs have met, for shares (beta, t)."""
    there = share >= HALF
    return np.where(there.any(axis=1), t[there.argmax(axis=1)], np.nan)


def sphere(data: Any) -> Any:
    """Share of pairs that have met over (t, beta), a column for each d and a row for each n."""
    share = data["met"].mean("seed")
    betas, t = data["beta"].values, data["t"].values
    ns, ds = np.atleast_1d(data["n"].values), data["d"].values
    lines = {int(n): meeting(int(n), betas, float(t[-1])) for n in ns}
    figure, grid = cy.plot.sheet(len(ns), len(ds), 3.2, 2.8, sharex=True, sharey=True)
    for axes, n in zip(grid, map(int, ns), strict=True):
        of_n = share if share.ndim == 3 else share.sel(n=n)
        for ax, d in zip(axes, ds, strict=True):
            values = of_n.sel(d=d).transpose("beta", "t").values
            image = _map(ax, t, betas, values)
            ax.plot(lines[n], betas, color=cy.plot.PALETTE[1], lw=2)
            ax.set(xlim=(0, t[-1]), ylim=(betas[0], betas[-1]))
            ax.set_title(f"d = {d}, n = {n}", fontsize=cy.plot.LABEL)
            half = half_met(values, t)
            told = [f"line of n = {m}: {_span(half / line)}" for m, line in lines.items()]
            print(f"d = {d}, n = {n}: half have met at so many times the {', '.join(told)}")
        axes[0].set_ylabel(r"inverse temperature $\beta$")
    for ax in grid[-1]:
        ax.set_xlabel("time t")
    _bar(figure, image, grid, "pairs that have met")
    return figure


def _span(x: np.ndarray) -> str:
    x = x[np.isfinite(x)]
    return f"{x.min():.2f} to {x.max():.2f}, median {np.median(x):.3f}" if len(x) else "none"


# --- leaders -------------------------------------------------------------------------------------


def leaders(data: Any) -> Any:
    """Share of tokens that lead at layer 0 over (n, d), and how far that is from B14's mean."""
    counts, n, d = data["first"].values, data["n"].values, data["d"].values  # (d, n, seed)
    mean, error = counts.mean(axis=-1), counts.std(axis=-1, ddof=1) / np.sqrt(counts.shape[-1])
    wanted = data["expected"].values[..., 0]
    other = np.array([[expected_leaders(int(m), int(k) + 1) for m in n] for k in d])
    figure, ((left, right),) = cy.plot.sheet(1, 2, 4.4, 3.6)
    rows = np.arange(len(d))
    image = _map(left, np.arange(len(n)), rows, mean / n)
    left.set_xticks(np.arange(len(n)), n)
    left.set_yticks(rows, d)
    left.set(xlabel="tokens n", ylabel="dimension d")
    left.set_title("share that leads at layer 0", fontsize=cy.plot.LABEL)
    _bar(figure, image, left, "share of tokens")
    off, control = _errors(mean, error, wanted), _errors(mean, error, other)
    bins = np.logspace(-2, 3, 31)
    for values, name, colour in ((off, "B14", 0), (control, "B14 at d + 1", 1)):
        shown = np.clip(np.abs(values), bins[0], bins[-1] * 0.99)
        right.hist(shown, bins, alpha=0.7, color=cy.plot.PALETTE[colour], label=name)
    right.axvline(3, color="0.4", lw=1, ls="--")
    right.set(xscale="log", xlabel="|mean - expectation| in standard errors", ylabel="places")
    right.set_title("against the exact expectation", fontsize=cy.plot.LABEL)
    right.legend(frameon=False, fontsize=cy.plot.LABEL)
    alike = error == 0
    near = int((np.abs(mean - wanted)[alike] < 0.05).sum())
    print(f"{len(off)} places with spread; without, {near} of {alike.sum()} within 0.05 of B14")
    for name, values in (("B14", off), ("B14 at d + 1", control)):
        within = [int((np.abs(values) <= k).sum()) for k in (1, 2, 3)]
        most = np.abs(values).max(initial=0)
        print(f"{name}: within 1, 2, 3 standard errors {within}, largest {most:.1f}")
    late = (data["final"] - data["first"]).values
    print(f"undecided tokens: {int(data['undecided'].sum())}; leaders born late: {late.sum()}")
    return figure


def _errors(mean: np.ndarray, error: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    some = error > 0
    return ((mean - wanted)[some] / error[some]).ravel()


def emergent_leaders(data: Any) -> Any:
    """Share of starts with a leader born after layer 0, over (alpha, n), for each d above 1."""
    some = (data["late"] > 0).mean("seed")
    alpha, n = data["alpha"].values, data["n"].values
    shown = [d for d in data["d"].values.tolist() if d > 1]
    figure, (axes,) = cy.plot.sheet(1, len(shown), 4.2, 3.4, sharey=True)
    top = float(some.max())
    for ax, d in zip(np.atleast_1d(axes), shown, strict=True):
        image = _map(ax, alpha, n, some.sel(d=d).transpose("n", "alpha").values, top)
        ax.set(xscale="log", yscale="log", xlabel=r"step $\alpha$")
        ax.set_title(f"d = {d}", fontsize=cy.plot.LABEL)
        ax.set_yticks(n[::2], n[::2])
        ax.minorticks_off()
    np.atleast_1d(axes)[0].set_ylabel("tokens n")
    _bar(figure, image, axes, "starts with a late leader")
    for d in data["d"].values.tolist():
        late = data["late"].sel(d=d).values
        last = int(data["last"].sel(d=d).max())
        print(
            f"d = {d}: {int((late > 0).sum())} of {late.size} starts ({(late > 0).mean():.4f}), at "
            f"most {late.max()} leaders, the last at layer {last}; by alpha below 1 "
            f"{(late[alpha < 1] > 0).mean():.4f}, from 1 on {(late[alpha >= 1] > 0).mean():.4f}"
        )
    return figure


# --- long context --------------------------------------------------------------------------------


def long_context(data: Any) -> Any:
    """How far one layer takes the cosine r to 1, over (r, gamma), and the border of B32."""
    r, gamma = data["r"].values, data["gamma"].values
    border = 1 / (1 - r)
    ns = data["n"].values.tolist()
    figure, (axes,) = cy.plot.sheet(1, len(ns), 4.2, 3.6, sharey=True)
    for ax, n in zip(axes, ns, strict=True):
        cosine = data["cosine"].sel(n=n).transpose("gamma", "r").values
        part = (cosine - r) / (1 - r)
        image = _map(ax, r, gamma, part)
        ax.plot(r, border, color=cy.plot.PALETTE[1], lw=2)
        ax.set(xlim=(r[0], r[-1]), ylim=(gamma[0], gamma[-1]), xlabel="cosine r of the tokens")
        ax.set_title(f"n = {n}", fontsize=cy.plot.LABEL)
        edge = gamma[:, None] * (1 - r)
        for name, where in (("<= 3/4", edge <= 0.75), (">= 5/4", edge >= 1.25)):
            print(f"n = {n}, gamma (1 - r) {name}: part of the way {_span(part[where])}")
        crossed = np.array([np.interp(-HALF, -part[:, k], gamma) for k in range(len(r))])
        inside = border < gamma[-1]
        for name, line in (("border", border), ("wrong border 1 + r", 1 + r)):
            told = _span((crossed / line)[inside])
            print(f"n = {n}: half of the way at so many times the {name} {told}")
    off = float(np.abs(data["cosine"] - data["closed"]).max())
    print(
        f"tokens against the closed form: at most {off:.1e} apart in {data['cosine'].size} places"
    )
    axes[0].set_ylabel(r"$\gamma = \beta / \log n$")
    _bar(figure, image, axes, "part of the way from r to 1")
    return figure


DRAWN = {f.__name__: f for f in (sphere, leaders, emergent_leaders, long_context)}


def draw(store: str | Path, out: Path | None = None) -> Path:
    """The picture of that store; beside the others of the page, unless another place is named."""
    data = cy.open_sweep(store)
    name = data.attrs["cell"].rpartition(":")[2].removesuffix("_met")
    figure, out = DRAWN[name](data), out or HERE / f"{name}.png"
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=100, metadata={"Software": None})
    return out


if __name__ == "__main__":
    print(draw(sys.argv[1], *map(Path, sys.argv[2:3])))
