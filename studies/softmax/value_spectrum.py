"""Eigenvalues of V against the structure of the limit, for given and random V in 2-D and 3-D.

    x_i' = sum_j P_ij V x_j,   seen as y = e^{-l1 t} x, l1 the largest real part of V's eigenvalues

See, for V as in arXiv 2305.05465 and for random V (Sugolov and Aubry): a multiple of I gives a
polytope; a simple leading eigenvalue that is real, positive and dominant gives at most three
hyperplanes; a leading eigenspace of dimension two a polytope times a line; a leading complex pair
turns the tokens round and round, mostly in few clusters; V = -I brings everything to 0, like
t^(-1/2). So do most random V without an eigenvalue of positive real part, but not all.
"""

from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

import cynosure as cy
from cynosure import study as st

from . import _shrinking

TITLE = "Eigenvalues of V and the limit: polytopes, hyperplanes, rotation, collapse"
GIVEN: dict[str, Any] = {
    "V = I": np.eye(2),
    "hyperplanes": np.array([[0.647, 0.819], [0.612, 0.633]]),  # the paper's V
    "saddle": np.diag([1.0, -0.5]),
    "complex pair": np.array([[0.6, -0.8], [0.8, 0.6]]),
    "Jordan block": np.array([[1.0, 0.5], [0.0, 1.0]]),
    "V = -I": -np.eye(2),
    "3-D, simple": np.array([[1.0, 0.3, 0.0], [0.0, 0.5, 0.2], [0.0, 0.0, -0.3]]),
    "3-D, plane x line": np.diag([1.0, 1.0, -0.5]),
    "3-D, complex": np.array([[0.8, -0.6, 0.0], [0.6, 0.8, 0.0], [0.0, 0.0, 0.3]]),
}
_TURNS = "complex pair"
CLASSES = ("good triple", "not dominant", _TURNS, "negative")


@dataclass(frozen=True)
class Params:
    """n tokens in a box; `random` matrices V of independent N(0, 1/d) entries for every d.

    Controls: groups of f1* at each of `tols`, complex pairs with `more` tokens, V that should
    shrink from starts of the other sizes `other`."""

    n: int = 30
    size: float = 3.0
    random: int = 120
    d: tuple[int, ...] = (2, 3)
    time: float = 18.0
    rtol: float = 1e-8
    tol: float = 0.02
    tols: tuple[float, ...] = (1e-3, 1e-5)
    more: int = 100
    other: tuple[float, ...] = (1.0, 9.0)
    seed: int = 0


QUICK = Params(n=10, random=4, time=17.0, more=20, other=(9.0,))


def run(p: Params, progress: st.Progress | None = None) -> st.Report:
    """The given matrices one by one, then the random ones, then those that should shrink."""
    over = st.measuring(p, progress)
    sensible = p.n >= 3 and p.random >= 1 and set(p.d) <= {2, 3} and p.time > 0
    st.require(sensible, "n >= 3, random >= 1, d 2 or 3, time > 0", p)
    flows = over(_given_run, {"V": tuple(GIVEN)}, 0.1)
    runs = dict(zip(GIVEN, flows))
    grid = {"d": p.d, "random V": range(p.random)}
    cases = over(_random_case, grid, 0.5)
    turning = [which for c, which in zip(cases, product(*grid.values())) if c.spectrum == _TURNS]
    down = [which for c, which in zip(cases, product(*grid.values())) if c.spectrum == "negative"]
    every = [(replace(p, n=p.more), *which) for which in turning]
    more = [c.clusters for c in st.kept_each(_random_case, every)]
    found = over(_descent, {"shrinking (d, V)": down})
    good = [c.values[0] for c in cases if c.spectrum == "good triple"]
    claim = "good triples among random V: the leading dual vector takes at most three values"
    more_than = sum(values > 3 for values in good)
    reference = "docs/mathematics.md B26"
    three = st.at_most("three values", reference, claim, more_than, 0, matrices=len(good))
    checks = {k: cy.check(tr, only=("B24", "B26", "B27", "B28")) for k, tr in runs.items()}
    checks["random V"] = [three]
    tables = [_given_table(p, runs), _random_table(p, cases)]
    if found:
        tables.append(_shrinking.table(found))
    text = _summary(p, cases) + "\n\n" + _shrinking.text(found)
    controls = (*_comparisons(p, cases, more), *_shrinking.comparisons(found))
    figures = [st.Picture.of("Given V", _panels, p, runs)]
    return st.report_of(p, text, controls=controls, tables=tables, checks=checks, figures=figures)


def _given_run(p: Params, name: str) -> cy.Trajectory:
    # turning tokens change their minds for ever, and no theorem asks for error control there
    turning = _spectrum_class(GIVEN[name]) == _TURNS
    stepper = None if turning else cy.simulation.Adaptive(p.rtol, 1e-3 * p.rtol)
    return _simulated(p, GIVEN[name], p.seed, stepper)


def _random_V(p: Params, d: int, number: int) -> np.ndarray:
    drawn = np.random.default_rng([p.seed, d]).standard_normal((number + 1, d, d))
    return drawn[number] / np.sqrt(d)


def _random_case(p: Params, d: int, number: int) -> st.Cell:
    return _case(p, "random", _simulated(p, _random_V(p, d, number), p.seed + number))


def _descent(p: Params, which: tuple[int, int]) -> _shrinking.Descent:
    d, number = which
    z0 = cy.configurations.box(p.n, d, p.seed + number)
    return _shrinking.descend(_random_V(p, d, number), z0, (p.size, *p.other), p.time)


def _simulated(
    p: Params, V: np.ndarray, seed: int, stepper: cy.simulation.Stepper | None = None
) -> cy.Trajectory:
    """To rest, or for long where V should shrink; fixed steps unless a stepper is given."""
    z0 = p.size * cy.configurations.box(p.n, len(V), seed)
    values = np.linalg.eigvals(V)
    leading, fastest = float(values.real.max()), float(np.abs(values).max())
    stepper = stepper or cy.simulation.RK4((0.1 if leading > 0 else 0.5) / fastest)
    if leading <= 0:  # no growth to divide by; x itself may still grow (`_shrinking`)
        times = np.append(0, np.geomspace(0.1, 30 * p.time, 60)) / fastest
        return cy.simulate(cy.dynamics.EuclideanFlow(V=V), z0, times=times, stepper=stepper)
    times = np.linspace(0, p.time / max(leading, 0.05 * fastest), 61)
    return cy.simulate(cy.dynamics.LeadingFlow(V=V), z0, times=times, stepper=stepper)


def _spectrum_class(V: np.ndarray) -> str:
    values = np.linalg.eigvals(V)
    if values.real.max() <= 0:
        return "negative"
    if abs(values[np.argmax(values.real)].imag) > 1e-9:
        return _TURNS
    return "good triple" if cy.spectra.good_triple(V=V).holds else "not dominant"


def _case(p: Params, name: str, tr: cy.Trajectory) -> st.Cell:
    """What a run looks like at the end, beside the spectrum of its V."""
    flow, y = tr.dynamics, tr.values[-1]
    assert isinstance(flow, cy.dynamics.LeadingFlow | cy.dynamics.EuclideanFlow)
    V = np.eye(y.shape[1]) if flow.V is None else flow.V
    values, size = np.linalg.eigvals(V), float(np.abs(y).max())
    real = abs(values[np.argmax(values.real)].imag) < 1e-9
    tols = (p.tol, *p.tols) if real else ()
    return st.Cell(
        name=name,
        eigenvalues=values[np.argsort(-np.abs(values), kind="stable")],
        spectrum=_spectrum_class(V),
        kind=cy.recognise(tr, p.tol).kind,
        clusters=cy.clusters(y, p.tol * size).count,
        # groups of f1*, the dual of the leading eigenvector if that is real
        values=tuple(len(cy.spectra.hyperplane_values(tr, tol=tol).values) for tol in tols),
        speed=float(np.abs(flow.velocity(y, float(tr.t[-1]))).max()) / size,
    )


def _given_table(p: Params, runs: dict[str, cy.Trajectory]) -> st.Table:
    def text(v: Any) -> str:
        return f"{v.real:.3g}" if abs(v.imag) < 1e-9 else f"{v.real:.3g}{v.imag:+.3g}i"

    columns = st.columns("V = name")
    columns |= {
        "eigenvalues": lambda c: ", ".join(map(text, c.eigenvalues)),
        "good triple": lambda c: c.spectrum == "good triple",
        "multiplicity": lambda c: cy.spectra.good_triple(V=GIVEN[c.name]).multiplicity,
    }
    columns |= st.columns("limit = kind, clusters of y = clusters")
    columns |= {"values of f1*": lambda c: next(iter(c.values), None), "speed at the end": "speed"}
    note = "Speed of y relative to its size; a complex pair never comes to rest."
    return st.Table.of("Given V", [_case(p, *item) for item in runs.items()], columns, note)


def _random_table(p: Params, cases: list[st.Cell]) -> st.Table:
    rows = []
    for d, name in product(p.d, CLASSES):
        group = [c for c in cases if (len(c.eigenvalues), c.spectrum) == (d, name)]
        if group:
            kinds, number = [c.kind for c in group], [c.clusters for c in group]
            text = ", ".join(f"{kind} {kinds.count(kind)}" for kind in sorted(set(kinds)))
            values = [most for one in zip(*(c.values for c in group)) if (most := max(one))]
            most = values or [None] * (1 + len(p.tols))
            row = (d, name, len(group), text, float(np.median(number)), max(number), *most)
            rows.append(row)
    tols = (f"values of f1*, tol {tol:g}" for tol in (p.tol, *p.tols))
    columns = ("d", "spectrum", "matrices", "limits found", "median clusters", "most", *tols)
    note = (
        "Not dominant: l1 is real and positive, but another eigenvalue is larger in modulus. "
        "Values of f1*: the most over the matrices, groups parted by gaps above tol of the largest."
    )
    return st.Table("Random V", columns, tuple(rows), note)


def _summary(p: Params, cases: list[st.Cell]) -> str:
    shares = []
    for d in p.d:
        spectra = [c.spectrum for c in cases if len(c.eigenvalues) == d]
        text = ", ".join(f"{name} {spectra.count(name) / len(spectra):.0%}" for name in CLASSES)
        shares.append(f"d = {d}: {text}")
    turning = [c for c in cases if c.spectrum == _TURNS]
    text = f"Random V with entries N(0, 1/d). {'; '.join(shares)}."
    if not turning:
        return text
    number = [c.clusters for c in turning]
    return (
        f"{text} The {len(turning)} complex leading pairs end in {np.median(number):g} clusters in "
        f"the median ({min(number)} to {max(number)}), turning at relative speed "
        f"{np.median([c.speed for c in turning]):.2g}."
    )


def _comparisons(p: Params, cases: list[st.Cell], more: list[int]) -> list[st.Comparison]:
    """Other tolerances for the values of f1*, more tokens for the clusters of a complex pair."""
    good, weak, turning, _ = ([c for c in cases if c.spectrum == name] for name in CLASSES)
    out = []
    named = (("good triples", good), ("a leading eigenvalue that is not dominant", weak))
    for name, group in named:
        if group:
            tols = (p.tol, *p.tols)
            right = [sum(c.values[k] <= 3 for c in group) for k in range(len(tols))]
            seen = "; ".join(f"tol {t:g}: {st.counted(r, len(group))}" for t, r in zip(tols, right))
            out.append(
                st.Comparison(
                    f"{name}: f1* takes at most three values",
                    f"finer tolerances; tokens that do not attend keep all {p.n} values",
                    f"{seen} have at most three",
                    min(right) == len(group),
                )
            )
    if turning:
        few, many = sum(c.clusters <= 3 for c in turning), sum(number <= 3 for number in more)
        n = len(turning)
        out.append(
            st.Comparison(
                "a leading complex pair ends in few clusters (three at most)",
                f"{p.more} tokens instead of {p.n}, the same V",
                f"{p.n} tokens: {st.counted(few, n)}, at most "
                f"{max(c.clusters for c in turning)}; {p.more} tokens: "
                f"{st.counted(many, n)}, at most {max(more)}",
                min(st.wilson(few, n)[0], st.wilson(many, n)[0]) > 0.5,
            )
        )
    return out


def _panels(p: Params, runs: dict[str, cy.Trajectory]) -> Any:
    """Top: eigenvalues of V; dotted: the largest real part. Below: the tokens y = e^{-l1 t} x (x
    itself for V = -I; the first two coordinates in 3-D) from circles along paths to squares.
    Dashed, where l1 is simple, real, positive and dominant: the level sets of the leading dual
    vector on which every token ends (in 3-D their trace in the plane y_3 = 0, to which y tends).
    """
    width = (len(runs) + 1) // 2
    figure, axes = cy.plot.sheet(4, width, 3.0, 2.7)
    grey = cy.plot.GREY
    for k, (name, tr) in enumerate(runs.items()):
        top, below = axes[2 * (k // width) :, k % width][:2]
        values = np.linalg.eigvals(GIVEN[name])
        top.plot(values.real, values.imag, "o", color=cy.plot.PALETTE[0])
        top.axvline(values.real.max(), color=cy.plot.INK, lw=0.8, ls=":")
        top.axhline(0, color=grey, lw=0.6, zorder=0)
        top.set(title=name, xlim=(-1.3, 1.8), ylim=(-1.1, 1.1), xlabel="Re", ylabel="Im")
        y = tr.values[..., :2]
        below.plot(y[..., 0], y[..., 1], color=grey, lw=0.5, zorder=1)
        below.plot(*y[0].T, "o", color=grey, ms=2.5)
        below.plot(*y[-1].T, "s", color=cy.plot.PALETTE[1], ms=5)
        below.margins(0.15)
        frame = {"xlim": below.get_xlim(), "ylim": below.get_ylim()}
        if _spectrum_class(GIVEN[name]) == "good triple":
            dual = cy.spectra.good_triple(V=GIVEN[name]).dual[:2]
            for value in cy.spectra.hyperplane_values(tr, tol=p.tol).values:  # lines f1* = value
                foot, along = value * dual / (dual @ dual), np.array([-dual[1], dual[0]])
                below.axline(foot, foot + along, ls="--", lw=0.8, color=cy.plot.INK)
        letter = "x" if name == "V = -I" else "y"
        below.set(xlabel=f"${letter}_1$", ylabel=f"${letter}_2$", **frame)
    for ax in axes[2 * (k // width) :, k % width + 1 :].flat:
        ax.set_axis_off()
    return figure
