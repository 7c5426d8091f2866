"""Figures 4 and 5: the largest delta against its definition, and judges that can fail."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import cynosure as cy
from cynosure.figures import _separation, figure4, figure5
from cynosure.figures._separation import largest_delta, possible_limits, sure_delta


def worst(s0: np.ndarray, others: np.ndarray, delta: float, many: int = 20_000) -> float:
    """max of <x, y - x> over |x - s0| = delta and |y - s| = delta, by brute force in the plane.

    For given x the best y is s + delta x/|x|. Inside the ball of s0 the maximum over x can only be
    at x parallel to s, where it is positive: then some x of the sphere has it positive as well.
    """
    angle = 2 * np.pi * np.arange(many) / many
    x = s0 + delta * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    size = np.linalg.norm(x, axis=1, keepdims=True)
    return float((x @ others.T - size**2 + delta * size).max())


def starts(d: int = 2) -> list[tuple[np.ndarray, np.ndarray]]:
    """A vertex of K and the other points of S, for some Gaussian starts."""
    out = []
    for seed in range(12):
        places = possible_limits(cy.PureAttention(), cy.configurations.gaussian(12, d, seed))
        i = int(np.flatnonzero(places.vertex)[seed % int(places.vertex.sum())])
        out.append((places.points[i], np.delete(places.points, i, axis=0)))
    return out


def test_the_largest_delta_is_where_the_definition_begins_to_fail() -> None:
    for s0, others in starts():
        delta = largest_delta(s0, others).delta
        assert worst(s0, others, (1 - 1e-5) * delta) < 0 < worst(s0, others, (1 + 1e-5) * delta)


def test_whole_balls_are_separated_not_only_spheres() -> None:
    rng = np.random.default_rng(3)
    for s0, others in starts(3):
        delta = (1 - 1e-9) * largest_delta(s0, others).delta
        u, v = rng.standard_normal((2, 4000, 3))
        u *= (rng.uniform(size=(4000, 1)) ** (1 / 3)) / np.linalg.norm(u, axis=1, keepdims=True)
        v *= (rng.uniform(size=(4000, 1)) ** (1 / 3)) / np.linalg.norm(v, axis=1, keepdims=True)
        x = s0 + delta * u
        for s in others:
            assert ((x * (s + delta * v - x)).sum(axis=1) < 0).all()


@pytest.mark.parametrize("A", [None, np.array([[2.0, 1.0], [1.0, 1.0]])])
def test_the_touching_pair_touches(A: np.ndarray | None) -> None:
    form = np.eye(2) if A is None else A
    dynamics = cy.PureAttention(cy.Hardmax(A))
    for seed in range(8):
        places = possible_limits(dynamics, cy.configurations.gaussian(14, 2, seed))
        for i, found in zip(np.flatnonzero(places.vertex), places.separations, strict=True):
            s0, s = places.points[i], np.delete(places.points, i, axis=0)[found.nearest]

            def length(v: np.ndarray) -> float:
                return float(np.sqrt(v @ form @ v))

            assert length(found.x - s0) == pytest.approx(found.delta, rel=1e-9)
            assert length(found.y - s) == pytest.approx(found.delta, rel=1e-9)
            assert abs(found.x @ form @ (found.y - found.x)) < 1e-12 * length(s0) ** 2 * 100


def test_a_change_of_variables_changes_nothing() -> None:
    """A = L L^T: points z L^-1 under A ask the same as points z under the identity."""
    root = np.array([[1.5, 0, 0], [0.3, 0.8, 0], [-0.2, 0.5, 1.1]])
    for s0, others in starts(3):
        back = np.linalg.inv(root)
        found = largest_delta(s0 @ back, others @ back, root @ root.T)
        assert found.delta == pytest.approx(largest_delta(s0, others).delta, rel=1e-9)


def test_the_bound_without_bisection_is_below() -> None:
    for s0, others in starts() + starts(3):
        assert 0 < sure_delta(s0, others) <= largest_delta(s0, others).delta


def test_only_vertices_have_one() -> None:
    """The square with two ties: S has its corners and the middles of its edges."""
    places = possible_limits(cy.PureAttention(), cy.configurations.golden("G2"))
    assert places.vertex.sum() == 4 and len(places.points) == 8
    middle = np.array([1.0, 0.0])
    others = np.array([s for s in places.points if (s != middle).any()])
    assert len(others) == 7
    assert largest_delta(middle, others).delta == 0 == sure_delta(middle, others)
    # By symmetry all corners have the same; their nearest are the middles beside them.
    deltas = [s.delta for s in places.separations]
    assert deltas == pytest.approx([deltas[0]] * 4)
    corner = np.array([1.0, 1.0])
    rest = np.array([s for s in places.points if (s != corner).any()])
    assert worst(corner, rest, deltas[0] * (1 - 1e-5)) < 0 < worst(corner, rest, deltas[0] * 1.0001)


def test_inside_K_the_vertex_is_on_the_other_side() -> None:
    """(b) of the lemma: <x, s_0 - x> >= 0 for x in K within delta of s_0."""
    rng = np.random.default_rng(1)
    for seed in range(6):
        places = possible_limits(cy.PureAttention(), cy.configurations.gaussian(12, 2, seed))
        corners = places.limit.polytope.vertices
        for i, found in zip(np.flatnonzero(places.vertex), places.separations, strict=True):
            s0 = places.points[i]
            x = rng.dirichlet(np.ones(len(corners)), 2000) @ corners
            step = np.linalg.norm(x - s0, axis=1, keepdims=True)
            x = s0 + (x - s0) * np.minimum(1, found.delta * rng.uniform(size=step.shape) / step)
            assert ((x * (s0 - x)).sum(axis=1) >= -1e-14).all()


def test_what_cannot_be_asked_is_refused() -> None:
    with pytest.raises(ValueError, match="another point"):
        largest_delta(np.ones(2), np.empty((0, 2)))
    with pytest.raises(ValueError, match="dimension 2"):
        largest_delta(np.ones(1), -np.ones((1, 1)))
    with pytest.raises(ValueError, match="shares"):
        figure4.run(replace(figure4.QUICK, shares=(0.0,)))
    with pytest.raises(ValueError, match="beyond"):
        figure5.run(replace(figure5.QUICK, beyond=1.0))


# --- the judges are judged -----------------------------------------------------------------------


def test_the_layer_of_entry_is_the_last_time_anyone_is_outside() -> None:
    inside = np.array([[1, 0], [1, 1], [0, 1], [1, 1], [1, 1]], dtype=bool)
    assert figure4._entry(inside) == 3
    assert figure4._entry(inside[:3]) == -1 and figure4._entry(inside[3:]) == 0


def test_a_token_that_leaves_is_counted() -> None:
    """Two points of S, the first a vertex; a token at it leads and does not count."""
    vertex = np.array([True, False])
    gaps = np.array([[[0.0, 9], [0.5, 9]], [[0.0, 9], [0.4, 9]], [[0.0, 9], [3.0, 0.1]]])
    none = figure4.Entries(0.5, 1.0, [], 1, 0, 0)
    found = figure4._with(none, gaps, 1.0, vertex)
    assert (found.entered, found.stays, found.leaves) == ([0], 2, 1)
    found = figure4._with(none, gaps, 0.45, vertex)  # inside from layer 1 on only
    assert (found.entered, found.stays, found.leaves) == ([1], 1, 1)
    assert figure4._with(none, gaps[:, 1:] + 1, 0.45, vertex) == none  # never inside


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_another_delta_fails_the_check(monkeypatch: pytest.MonkeyPatch, factor: float) -> None:
    report = figure5.run(figure5.QUICK)
    assert report.failures == [] and all(c.survives for c in report.controls)
    honest = _separation.largest_delta

    def wrong(*args: np.ndarray) -> _separation.Separation:
        found = honest(*args)
        return found._replace(delta=factor * found.delta, x=found.x * 0.99)

    monkeypatch.setattr(_separation, "largest_delta", wrong)
    report = figure5.run(figure5.QUICK)
    assert len(report.failures) == 1 and not report.controls[0].survives


def test_figures_4_and_5_draw_what_they_say() -> None:
    p = replace(figure4.QUICK, starts=2)
    report = figure4.run(p)
    panels = report.figures[0].drawing.axes
    assert [ax.get_title().split(":")[0] for ax in panels] == [f"k = {k}" for k in p.show]
    places = possible_limits(
        cy.PureAttention(alpha=p.alpha), cy.configurations.gaussian(p.n, 2, p.seed)
    )
    for ax in panels:
        balls = [a for a in ax.patches if a.get_gid() == "ball"]
        assert len(balls) == len(places.points)
        assert all(b.get_radius() == places.delta for b in balls)
    assert panels[-1].get_title().endswith(f"{p.n} of {p.n} inside")
    assert len(figure5.run(figure5.QUICK).figures[0].drawing.axes) == 3
