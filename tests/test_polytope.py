"""Hulls against linear programs, rational brute force and the optimality conditions."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog, minimize

from cynosure.analysis.polytope import Polytope, hull, minimal_points
from cynosure.analysis.vertices import orientation

CUBE = np.array(list(product((-1.0, 1.0), repeat=3)))


def in_hull(y, z) -> bool:
    """Oracle: is y a convex combination of the rows of z? One linear program."""
    if len(z) == 0:
        return False
    program = linprog(
        np.zeros(len(z)),
        A_eq=np.vstack([z.T, np.ones(len(z))]),
        b_eq=np.append(y, 1.0),
        method="highs",
    )
    return program.status == 0


def exact_plane_vertices(z) -> set[int]:
    """Oracle: rationals, straight from the definition (Carathéodory), first of duplicates."""
    p = [tuple(Fraction(x) for x in row) for row in np.asarray(z).tolist()]
    distinct = [i for i in range(len(p)) if p[i] not in p[:i]]

    def cross(a, b, c):
        return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])

    def covered(i):
        others = [p[j] for j in distinct if j != i]
        for a, b in combinations(others, 2):
            between = all(min(s, t) <= x <= max(s, t) for s, t, x in zip(a, b, p[i]))
            if cross(a, b, p[i]) == 0 and between:
                return True
        for a, b, c in combinations(others, 3):
            turns = [cross(a, b, p[i]), cross(b, c, p[i]), cross(c, a, p[i])]
            if cross(a, b, c) and (min(turns) >= 0 or max(turns) <= 0):
                return True
        return False

    return {i for i in distinct if not covered(i)}


def positive_definite(d, rng):
    m = rng.standard_normal((d, d))
    return m @ m.T + 0.1 * np.eye(d)


def assert_nearest(polytope, y, x, A=None):
    """x is the A-projection of y on the hull iff it is inside and <A(y - x), v - x> <= 0."""
    A = np.eye(len(y)) if A is None else A
    v = polytope.vertices
    scale = np.abs(v).max() + np.abs(y).max()
    assert polytope.distance(x) <= 1e-12 * scale
    assert ((v - x) @ A @ (y - x)).max() <= 1e-12 * scale**2 * np.linalg.norm(A, 2)


def test_the_judge_of_projections_condemns_a_wrong_one():
    square = hull([[1, 1], [1, -1], [-1, -1], [-1, 1]])
    assert_nearest(square, np.array([3.0, 0.5]), np.array([1.0, 0.5]))
    for wrong in ([1.0, 0.6], [1.1, 0.5], [0.9, 0.5]):
        with pytest.raises(AssertionError):
            assert_nearest(square, np.array([3.0, 0.5]), np.array(wrong))


# --- vertices -----------------------------------------------------------------------------------

small = st.integers(-3, 3)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(small, small), min_size=1, max_size=9))
def test_planar_vertices_equal_rational_brute_force(tokens):
    z = np.array(tokens, dtype=float)
    p = hull(z)
    assert set(p.index.tolist()) == exact_plane_vertices(z)
    np.testing.assert_array_equal(p.vertices, z[p.index])
    # The same tokens in a plane of R^3, tilted by an exact (integer) map.
    lifted = hull(z @ np.array([[1.0, 2.0, -1.0], [0.0, 1.0, 3.0]]) + [5, -7, 1])
    assert set(lifted.index.tolist()) == exact_plane_vertices(z)
    assert lifted.dim == p.dim


def test_planar_vertices_of_nearly_collinear_floats_are_exact():
    rng = np.random.default_rng(0)
    for _ in range(30):
        t = rng.integers(0, 20, 8) / 10
        z = np.stack([t, 0.1 + t / 3], axis=1)  # on a line up to rounding only
        p = hull(z)
        assert set(p.index.tolist()) == exact_plane_vertices(z)
        assert p.contains(z).all()


def test_orientation_survives_overflow_and_underflow():
    a, b = np.array([0.0, 0.0]), np.array([1e-200, 1e-200])
    assert orientation(a, b, np.array([1e-200, 2e-200])) == 1
    assert orientation(a, b, np.array([3e-200, 3e-200])) == 0
    big = np.array([1e300, 1e300])
    assert orientation(a, big, np.array([1e300, np.nextafter(1e300, np.inf)])) == 1
    assert orientation(a, big, np.array([1.5e300, 1.5e300])) == 0


@pytest.mark.parametrize("scale", [1.0, 1e-9, 1e150])
def test_many_planar_tokens_equal_the_slow_chain(scale):
    # 257 tokens and more pass the interior filter first; without it the answer must be the same.
    rng = np.random.default_rng(1)
    for z in (
        rng.standard_normal((3000, 2)),
        rng.integers(-20, 21, (3000, 2)).astype(float),
        np.stack([np.cos(t := rng.uniform(0, 7, 400)), np.sin(t)], axis=1),
        np.repeat(rng.standard_normal((1, 2)), 400, axis=0),
    ):
        z = z * scale
        found = set()
        for part in np.array_split(np.arange(len(z)), len(z) // 200):
            found |= set(part[hull(z[part]).index].tolist())
        rows = np.array(sorted(found))
        while len(rows) > 256:  # hull of hulls, never above the filter's threshold
            parts = np.array_split(rows, len(rows) // 200 + 1)
            rows, before = np.concatenate([q[hull(z[q]).index] for q in parts]), rows
            if len(rows) == len(before):
                break
        if len(rows) <= 256:
            rows = rows[hull(z[rows]).index]
        np.testing.assert_array_equal(hull(z).index, np.sort(rows))


@pytest.mark.parametrize("d", [3, 4, 5, 6])
def test_vertices_equal_the_linear_program(d):
    rng = np.random.default_rng(d)
    for n, z in (
        (30, rng.standard_normal((30, d))),
        (d + 2, rng.standard_normal((d + 2, d))),
        (25, rng.integers(-1, 2, (25, d)).astype(float)),
    ):
        distinct = np.unique(z, axis=0, return_index=True)[1]
        p = hull(z)
        expected = [i for i in distinct if not in_hull(z[i], z[distinct[distinct != i]])]
        assert sorted(expected) == p.index.tolist(), n
        assert p.dim == np.linalg.matrix_rank(z - z[0])


def test_tokens_on_faces_are_no_vertices():
    lattice = np.array(list(product((-1.0, 0.0, 1.0), repeat=3)))
    np.testing.assert_array_equal(hull(lattice).vertices, CUBE)
    # Thirds are not floats: an edge token that is inside or outside by rounding is left out.
    rng = np.random.default_rng(3)
    q = np.linalg.qr(rng.standard_normal((3, 3)))[0]
    assert hull(lattice @ q.T).index.tolist() == hull(lattice).index.tolist()
    lattice5 = np.array(list(product((-1.0, 0.0, 1.0), repeat=5)))
    assert hull(lattice5).vertices.shape == (32, 5)
    assert np.abs(hull(lattice5).vertices).min() == 1


def test_tokens_that_barely_stick_out_are_vertices():
    z = np.vstack([CUBE, [0, 0, 1 + 1e-9], [0, 1 - 1e-9, 0]])
    assert hull(z).index.tolist() == list(range(9))


def test_high_dimension_has_vertices_and_refuses_facets():
    z = np.random.default_rng(5).standard_normal((40, 12))
    z = np.vstack([z, z[:20].mean(axis=0), z[3]])
    p = hull(z)
    expected = [i for i in range(40) if not in_hull(z[i], np.delete(z[:40], i, axis=0))]
    assert p.index.tolist() == expected and p.dim == 12
    with pytest.raises(ValueError, match="too many to list"):
        p.facets  # noqa: B018
    assert p.contains(z).all() and not p.contains(2 * z[:5]).any()


# --- flat sets ----------------------------------------------------------------------------------


def test_single_token_and_duplicates():
    for z in ([[2.0, -1.0, 3.0]], [[2.0, -1.0, 3.0]] * 4):
        p = hull(z)
        assert (p.dim, p.index.tolist(), p.facets, p.volume) == (0, [0], (), 0)
        assert p.equations.shape == (0, 4) and p.affine_equations.shape == (3, 4)
        assert p.contains([[2, -1, 3], [2, -1, 3.1]]).tolist() == [True, False]
        np.testing.assert_array_equal(p.project([0.0, 0.0, 0.0]), [2, -1, 3])
        assert p.faces(0) == ((0,),)


@pytest.mark.parametrize("d", [1, 2, 3, 7])
def test_tokens_on_a_line(d):
    rng = np.random.default_rng(d)
    t = np.array([0.0, 3.0, 1.0, -2.0, 3.0, 0.5])
    direction = rng.integers(1, 9, d)
    p = hull(t[:, None] * direction + 1.0)
    assert p.dim == 1 and p.index.tolist() == [1, 3]
    assert [f.tolist() for f in p.facets] == [[0], [1]]
    assert p.volume == pytest.approx(5 * np.linalg.norm(direction))
    assert p.contains(t[:, None] * direction + 1.0).all()
    assert not p.contains([3.1 * direction + 1.0, -2.1 * direction + 1.0]).any()
    if d > 1:
        assert not p.contains([direction + 1.0 + 0.01 * np.eye(d)[0]]).any()
    assert p.ordered().shape == (2, d)


def test_planar_set_in_space_after_a_rotation_far_from_the_origin():
    rng = np.random.default_rng(2)
    q = np.linalg.qr(rng.standard_normal((3, 3)))[0]
    plane = rng.standard_normal((40, 2))
    for shift in (0.0, 1e3, 1e6):
        z = np.c_[plane, np.zeros(40)] @ q.T + shift
        p = hull(z)
        assert p.dim == 2 and p.index.tolist() == hull(plane).index.tolist()
        assert p.volume == pytest.approx(hull(plane).volume, rel=1e-8)
        assert p.contains(z, tol=1e-9 * (1 + shift)).all()
        normal = p.affine_equations[0, :-1]
        assert abs(normal @ q[:, 2]) == pytest.approx(1, abs=1e-8)
        assert np.abs(p.equations[:, :-1] @ normal).max() < 1e-10


def test_flat_of_dimension_three_in_many_dimensions():
    rng = np.random.default_rng(4)
    m = rng.integers(-3, 4, (3, 9)).astype(float)
    p = hull(CUBE @ m + 2)
    assert p.dim == 3 and len(p.index) == 8 and len(p.facets) == 6
    assert p.volume == pytest.approx(8 * np.sqrt(np.linalg.det(m @ m.T)))


# --- facets and faces ---------------------------------------------------------------------------


def test_cube_has_merged_facets_and_the_right_faces():
    p = hull(np.vstack([CUBE, 0.5 * CUBE]))
    assert sorted(len(f) for f in p.facets) == [4] * 6
    assert [len(p.faces(k)) for k in range(4)] == [8, 12, 6, 1]
    assert {tuple(row) for row in p.equations.round(12) + 0.0} == {
        tuple(np.append(s * np.eye(3)[i], -1.0) + 0.0) for i in range(3) for s in (1, -1)
    }
    assert p.volume == pytest.approx(8)
    for facet, (*c, b) in zip(p.facets, p.equations):
        np.testing.assert_allclose(p.vertices[facet] @ c + b, 0, atol=1e-14)
    for k in (-1, 4):
        with pytest.raises(ValueError, match=r"faces 0\.\.3"):
            p.faces(k)


@pytest.mark.parametrize("d", [3, 4, 5])
def test_euler_relation_and_simplex_faces(d):
    z = np.random.default_rng(d).standard_normal((d + 6, d))
    p = hull(z)
    counts = [len(p.faces(k)) for k in range(d)]
    assert sum((-1) ** k * c for k, c in enumerate(counts)) == 1 - (-1) ** d
    assert all(len(f) == k + 1 for k in range(d) for f in p.faces(k))
    cross = hull(np.vstack([np.eye(d), -np.eye(d)]))
    assert len(cross.facets) == 2**d and len(cross.faces(1)) == 2 * d * (d - 1)


def test_rotated_prism_facets_survive_rounding():
    rng = np.random.default_rng(7)
    angle = np.linspace(0, 2 * np.pi, 12, endpoint=False)
    base = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    prism = np.vstack([np.c_[base, np.full(12, h)] for h in (-1.0, 1.0)])
    for _ in range(5):
        q = np.linalg.qr(rng.standard_normal((3, 3)))[0]
        p = hull(prism @ q.T * 10.0 ** rng.integers(-6, 7))
        assert sorted(map(len, p.facets)) == [4] * 12 + [12] * 2
        assert [len(p.faces(k)) for k in range(4)] == [24, 36, 14, 1]


def test_polygon_edges_and_order():
    z = np.random.default_rng(8).standard_normal((50, 2))
    p = hull(z)
    turn = p.ordered()
    following = np.roll(turn, -1, axis=0)
    after = np.roll(turn, -2, axis=0)
    assert all(orientation(a, b, c) == 1 for a, b, c in zip(turn, following, after))
    for (i, j), a, b, (cx, cy, o) in zip(p.facets, turn, following, p.equations):
        np.testing.assert_array_equal(p.vertices[[i, j]], [a, b])
        assert (z @ [cx, cy] + o).max() <= 1e-15
        np.testing.assert_allclose([a @ [cx, cy] + o, b @ [cx, cy] + o], 0, atol=1e-14)
    with pytest.raises(ValueError, match="planar"):
        hull(CUBE).ordered()


def test_volumes_of_known_bodies():
    assert hull([[0, 0], [4, 0], [4, 3], [2, 3], [2, 2]]).volume == pytest.approx(9.0)
    simplex = np.vstack([np.zeros(4), np.diag([1.0, 2.0, 3.0, 4.0])])
    assert hull(simplex).volume == pytest.approx(1.0)
    tetrahedron = hull([[1, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]])
    assert tetrahedron.volume == pytest.approx(8 / 3)


# --- membership and projection ------------------------------------------------------------------


@pytest.mark.parametrize(("n", "d"), [(8, 1), (9, 2), (12, 3), (14, 4), (20, 9), (4, 6)])
def test_contains_equals_the_linear_program(n, d):
    rng = np.random.default_rng(n)
    z = rng.standard_normal((n, d))
    y = np.vstack([rng.dirichlet(np.full(n, 0.3), 15) @ z, 0.8 * rng.standard_normal((15, d))])
    p = hull(z)
    inside = p.contains(y)
    assert inside.tolist() == [in_hull(yi, z) for yi in y]
    assert inside[:15].all() and p.contains(y[0]) == inside[0]
    assert p.contains(z).all()


@pytest.mark.parametrize(("n", "d"), [(6, 1), (8, 2), (12, 3), (20, 5), (30, 10), (3, 4), (1, 2)])
def test_projection_meets_its_optimality_conditions(n, d):
    rng = np.random.default_rng(10 * n + d)
    for trial in range(10):
        z = rng.integers(-3, 4, (n, d)).astype(float) if trial % 2 else rng.standard_normal((n, d))
        p = hull(z)
        A = positive_definite(d, rng)
        y = 3 * rng.standard_normal((5, d))
        for metric in (None, A):
            x = p.project(y, metric)
            for yi, xi in zip(y, x):
                assert_nearest(p, yi, xi, metric)
            np.testing.assert_array_equal(p.project(y[0], metric), x[0])
            root = np.eye(d) if metric is None else np.linalg.cholesky(metric)
            gaps = np.linalg.norm((y - x) @ root, axis=1)
            np.testing.assert_allclose(p.distance(y, metric), gaps, rtol=1e-12)
        inside = rng.dirichlet(np.ones(len(p.vertices)), 3) @ p.vertices
        np.testing.assert_allclose(p.project(inside, A), inside, atol=1e-13)


def test_projection_agrees_with_a_general_optimiser():
    rng = np.random.default_rng(11)
    for d in (2, 3, 5):
        z, A = rng.standard_normal((9, d)), positive_definite(d, rng)
        y = 2 * rng.standard_normal(d)
        answer = minimize(
            lambda w, z=z, A=A, y=y: (w @ z - y) @ A @ (w @ z - y),
            np.full(9, 1 / 9),
            method="SLSQP",
            bounds=[(0, 1)] * 9,
            constraints={"type": "eq", "fun": lambda w: w.sum() - 1},
            options={"ftol": 1e-14, "maxiter": 500},
        )
        ours = hull(z).distance(y, A) ** 2
        assert ours == pytest.approx(answer.fun, rel=1e-6, abs=1e-8)


def test_projection_keeps_all_digits_near_a_wedge():
    # |x|^2 is flat to the last bit near the foot; only the angle test finds it.
    p = hull([[1.0, -1.0], [1.0 + 1e-9, 1.0], [2.0, 0.0]])
    x = p.project([0.0, 0.0])
    c = np.array([2.0, -1e-9]) / np.hypot(2.0, 1e-9)
    np.testing.assert_allclose(x, c * (c @ [1.0, -1.0]), atol=1e-15)


def test_bad_input():
    p = hull([[0, 0], [1, 0], [0, 1]])
    with pytest.raises(ValueError, match="symmetric"):
        p.project([1, 1], A=[[1, 2], [0, 1]])
    with pytest.raises(ValueError, match="least eigenvalue -1"):
        p.project([1, 1], A=[[1, 0], [0, -1]])
    with pytest.raises(ValueError, match="A: expected shape"):
        p.project([1, 1], A=np.eye(3))
    with pytest.raises(ValueError, match="d = 2"):
        p.contains([[1, 1, 1]])
    with pytest.raises(ValueError, match="NaN"):
        hull([[np.nan, 1]])
    with pytest.raises(ValueError, match="index"):
        Polytope.from_vertices([[0, 0], [1, 1]], index=[0])


def test_from_vertices_is_the_hull_of_its_rows():
    z = np.random.default_rng(12).standard_normal((20, 3))
    p = hull(z)
    q = Polytope.from_vertices(p.vertices[::-1], index=p.index[::-1])
    assert q.volume == pytest.approx(p.volume) and len(q.facets) == len(p.facets)
    assert q.index.tolist() == p.index.tolist()[::-1]
    assert Polytope.from_vertices([[1, 2]]).dim == 0


# --- S ------------------------------------------------------------------------------------------


def as_set(s):
    return {tuple(row) for row in np.asarray(s).round(9) + 0.0}


def test_minimal_points_of_the_square_are_corners_and_midpoints():
    square = hull([[1, 1], [1, -1], [-1, -1], [-1, 1]])
    assert as_set(minimal_points(square)) == {
        (x, y) for x in (-1, 0, 1) for y in (-1, 0, 1) if (x, y) != (0, 0)
    }
    assert len(minimal_points(hull(CUBE))) == 26
    # Away from 0: only the far corner, and the feet that see the set on their near side.
    assert as_set(minimal_points(hull([[1, 1], [2, 1], [2, 2], [1, 2]]))) == {(2, 2)}
    # A flat set: the foot of 0 on the segment itself belongs to S.
    assert as_set(minimal_points(hull([[1, -1], [1, 1]]))) == {(1, -1), (1, 0), (1, 1)}
    assert as_set(minimal_points(hull([[0, 0], [3, 0]]))) == {(3, 0)}
    assert minimal_points(hull([[0.0, 0.0]])).shape == (0, 2)


@pytest.mark.parametrize("d", [2, 3])
def test_minimal_points_satisfy_the_definition_and_are_complete(d):
    rng = np.random.default_rng(d)
    for _ in range(8):
        z, A = rng.standard_normal((9, d)), positive_definite(d, rng)
        p = hull(z)
        s = minimal_points(p, A)
        assert p.contains(s, tol=1e-11).all()
        norms = np.einsum("ij,jk,ik->i", s, A, s)
        np.testing.assert_allclose((s @ A @ z.T).max(axis=1), norms, rtol=1e-11, atol=1e-12)
        # Completeness: the nearest point to 0 of any exposed face, tried from many directions.
        for c in rng.standard_normal((200, d)):
            v = p.vertices[(p.vertices @ c).argmax()]
            if (z @ A @ v).max() <= v @ A @ v:
                assert np.abs(s - v).sum(axis=1).min() < 1e-12
        for facet in p.facets:
            foot = Polytope.from_vertices(p.vertices[facet]).project(np.zeros(d), A)
            if (z @ A @ foot).max() <= (foot @ A @ foot) * (1 + 1e-13):
                assert np.abs(s - foot).sum(axis=1).min() < 1e-9


def test_tokens_a_rounding_apart_in_space_do_not_defeat_qhull():
    """Late layers in R^4: followers sit one rounding from their leader."""
    import cynosure as cy

    z = cy.simulate(cy.PureAttention(alpha=10.0), cy.configurations.gaussian(256, 4, 1), layers=12)
    p = hull(z.values[-1])
    assert set(cy.roles(z).leaders.tolist()) <= set(p.index.tolist())


# --- any unit of length --------------------------------------------------------------------------


@pytest.mark.parametrize("d", [1, 2, 3, 4])
@pytest.mark.parametrize("k", [-1000, -830, -400, -50, 1, 60, 512, 830, 1000])
def test_everything_scales_with_a_power_of_two_to_the_last_bit(d, k):
    rng = np.random.default_rng(d)
    z, A = rng.standard_normal((12, d)), positive_definite(d, rng)
    y = np.vstack([1.5 * rng.standard_normal((6, d)), z[:2]])
    plain, moved = hull(z), hull(np.ldexp(z, k))
    far = np.ldexp(y, k)
    np.testing.assert_array_equal(moved.index, plain.index)
    np.testing.assert_array_equal(moved.contains(far), plain.contains(y))
    np.testing.assert_array_equal(
        moved.contains(far, float(np.ldexp(0.3, k))), plain.contains(y, 0.3)
    )
    for form in (None, A):
        np.testing.assert_array_equal(moved.project(far, form), np.ldexp(plain.project(y, form), k))
        gap = np.ldexp(plain.distance(y, form), k)
        np.testing.assert_array_equal(moved.distance(far, form), gap)
    large = float(np.ldexp(1.0, 2 * min(max(k, -450), 450)))
    np.testing.assert_array_equal(plain.project(y, large * A), plain.project(y, A))
    assert moved.size == np.ldexp(plain.size, k)
    with np.errstate(over="ignore"):
        assert moved.volume == np.ldexp(plain.volume, d * k)  # inf or 0 where it is no float
    np.testing.assert_array_equal(moved.equations[:, :-1], plain.equations[:, :-1])
    np.testing.assert_array_equal(moved.equations[:, -1], np.ldexp(plain.equations[:, -1], k))
    if d < 4:
        at = np.ldexp(minimal_points(plain, A), k)
        np.testing.assert_array_equal(minimal_points(moved, A), at)


@pytest.mark.parametrize("size", [1e-308, 1e-250, 1e250, 1.7e308])
def test_the_square_of_any_size(size):
    square = hull(size * np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]]))
    assert len(square.vertices) == 4
    assert square.contains(size * np.array([[0.5, 0.5], [1.0, 0.0]])).all()
    if size < 1e300:
        assert not square.contains(size * np.array([[1.5, 0.0], [3.0, 3.0]])).any()
        foot = square.project(size * np.array([3.0, 0.25]))
        np.testing.assert_allclose(foot, size * np.array([1.0, 0.25]), rtol=1e-15)
        np.testing.assert_allclose(square.distance(size * np.array([3.0, 0.25])), 2 * size)
    np.testing.assert_allclose(
        square.project(size * np.array([0.1, 0.2])), [0.1 * size, 0.2 * size]
    )


def test_a_point_beyond_all_sizes_has_a_foot():
    square = hull(1e-300 * np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]]))
    np.testing.assert_array_equal(square.project([1e300, 1e300]), [1e-300, 1e-300])
    assert not square.contains([1e300, 1e300]) and square.distance([1e300, 0.0]) == 1e300


@pytest.mark.parametrize("size", [1e-290, 1e290])
def test_many_tokens_far_out_are_not_decided_in_rationals(size, monkeypatch):
    """A power of two first: else every orientation overflows and falls back to them."""
    from cynosure.analysis import vertices

    asked = []
    monkeypatch.setattr(vertices, "Fraction", lambda x: asked.append(x) or Fraction(x))
    hull(size * np.random.default_rng(0).standard_normal((200, 2)))
    assert len(asked) < 100


def test_a_hull_in_high_dimension_ends_at_its_deadline() -> None:
    z = np.random.default_rng(0).normal(size=(3000, 8))
    with pytest.raises(TimeoutError, match="hull: its time is over"):
        hull(z, deadline=0.05)
    assert (hull(z[:40], deadline=60.0).index == hull(z[:40]).index).all()
