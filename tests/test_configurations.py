"""Named tokens are finite, seeded and what the papers say; the reader refuses every bad file."""

from __future__ import annotations

import io
import zipfile
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from cynosure._files.tokens import _read_slowly, _rows
from cynosure.simulation.configurations import (
    CONFIGURATIONS,
    GOLDEN,
    ball,
    box,
    figure2,
    gaussian,
    golden,
    golden_exact,
    grid,
    group,
    like,
    mixture,
    polygon,
    read,
    rotated_square,
    shells,
    sphere,
)


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_every_configuration_is_a_finite_reproducible_float64_matrix(name):
    z = CONFIGURATIONS[name]()
    assert z.dtype == np.float64 and z.ndim == 2 and z.size and np.isfinite(z).all()
    np.testing.assert_array_equal(z, CONFIGURATIONS[name]())


@pytest.mark.parametrize("f", [gaussian, ball, box, sphere, grid, shells, mixture])
def test_shape_and_seed_are_obeyed(f):
    assert f(7, 3, seed=1).shape == (7, 3)
    assert not np.array_equal(f(7, 3, seed=1), f(7, 3, seed=2))
    for n, d in ((0, 2), (3, 0)):
        with pytest.raises(ValueError, match=r"n >= 1|groups"):
            f(n, d)


def test_laws_of_the_random_tokens():
    d = 3
    norms = np.linalg.norm(ball(4000, d), axis=1)
    assert norms.max() <= 1
    # P(|z| <= r) = r^d; 4000 draws leave about 0.008 of noise.
    assert abs(np.mean(norms <= 0.7) - 0.7**d) < 0.04
    np.testing.assert_allclose(np.linalg.norm(sphere(50, 5), axis=1), 1, atol=1e-15)
    assert np.abs(box(1000, 2)).max() <= 1 < np.abs(gaussian(1000, 2)).max()
    z = grid(500, 2, size=2)
    assert set(np.unique(z)) == {-2, -1, 0, 1, 2}


@pytest.mark.parametrize(
    ("norms", "beyond"),  # P(|z| > 2) of the law
    [
        ("pareto:2", 1 / 4),
        ("lognormal:0.5", 0.0828),
        ("uniform:1:3", 1 / 2),
        ("student:2", 1 / 3),  # in the plane P(|z| > r) = 1 / (1 + r^2 / 2)
        ("1.5", 0.0),
    ],
)
def test_laws_of_the_norms(norms, beyond):
    z, plain = gaussian(20_000, 2, seed=3, norms=norms), gaussian(20_000, 2, seed=3)
    size = np.linalg.norm(z, axis=1)
    assert abs(np.mean(size > 2) - beyond) < 4 * np.sqrt(0.25 / 20_000)
    unit = plain / np.linalg.norm(plain, axis=1, keepdims=True)
    np.testing.assert_allclose(z, unit * size[:, None], atol=1e-12)  # directions stay
    np.testing.assert_array_equal(
        gaussian(50, 2, scale=3, norms=norms)[0], 3 * gaussian(50, 2, norms=norms)[0]
    )


@pytest.mark.parametrize(
    "norms", ["pareto", "pareto:0", "pareto:x", "uniform:2:1", "cauchy:1", "-1:2"]
)
def test_a_law_that_is_none_is_refused(norms):
    with pytest.raises(ValueError, match="pareto:A, lognormal:S"):
        gaussian(5, 2, norms=norms)


def test_scale_shells_and_mixtures():
    for f in (gaussian, box, sphere, ball):
        np.testing.assert_array_equal(f(9, 3, seed=1, scale=2), 2 * f(9, 3, seed=1))
    assert group(7, 3).tolist() == [0, 0, 0, 1, 1, 2, 2]
    radii = np.linalg.norm(shells(60, 4, seed=2, count=3, inner=1, outer=5), axis=1)
    np.testing.assert_allclose(radii, np.repeat([1, 3, 5], 20))
    z, label = mixture(3000, 5, seed=4, groups=3, spread=0.1), group(3000, 3)
    assert all(abs(z[label == g].std(axis=0).mean() - 0.1) < 0.01 for g in range(3))
    for bad in (
        lambda: shells(5, 2, inner=0),
        lambda: mixture(5, 2, groups=6),
        lambda: group(3, 0),
    ):
        with pytest.raises(ValueError, match=r"radii|groups"):
            bad()


def test_like_has_the_size_of_what_is_given_and_nothing_else():
    seen = mixture(40, 16, seed=5, groups=2) * np.linspace(1, 9, 40)[:, None]
    z, size = like(seen, seed=1), np.linalg.norm(seen, axis=1)
    np.testing.assert_allclose(np.linalg.norm(z, axis=1), size)
    cosines = (z * seen).sum(axis=1) / size**2
    assert np.abs(cosines.mean()) < 0.15 and (like(seen, seed=1) == z).all()
    more = np.linalg.norm(like(seen, n=500), axis=1)
    assert all(np.isclose(x, size).any() for x in more) and len(np.unique(more.round(9))) > 30
    assert (like(np.zeros((3, 2))) == 0).all()


def test_polygon_is_regular_and_holds_its_interior_tokens():
    z = polygon(5, radius=2, phase=0.3, interior=200, seed=4)
    corners, inside = z[:5], z[5:]
    sides = np.linalg.norm(corners - np.roll(corners, -1, axis=0), axis=1)
    np.testing.assert_allclose(sides, 4 * np.sin(np.pi / 5))
    # Outer normals of the sides point along the bisectors, at distance 2 cos(pi/5).
    bisectors = (corners + np.roll(corners, -1, axis=0)) / (4 * np.cos(np.pi / 5))
    assert (inside @ bisectors.T).max() <= 2 * np.cos(np.pi / 5) + 1e-12
    assert len(np.unique(np.argmax(inside @ bisectors.T, axis=1))) == 5
    for bad in ({"n": 2}, {"radius": 0}, {"interior": -1}):
        with pytest.raises(ValueError):
            polygon(**bad)


def _layer(z, alpha):
    """One exact hardmax layer with A = I, straight from the definition."""
    following, moved = [], []
    for zi in z:
        scores = [sum(a * b for a, b in zip(zi, zj, strict=True)) for zj in z]
        ci = [j for j, s in enumerate(scores) if s == max(scores)]
        mean = [sum(z[j][c] for j in ci) / len(ci) for c in range(len(zi))]
        moved.append(tuple((x + alpha * m) / (1 + alpha) for x, m in zip(zi, mean, strict=True)))
        following.append(ci)
    return following, moved


def test_golden_cases_behave_as_documented():
    half = Fraction(1, 2)
    first, z = _layer(golden_exact("G1"), half)
    assert first == [[0], [3], [2], [0], [2], [2], [0], [0]]
    assert z[1] == (Fraction(-1, 18), Fraction(5, 36)) and _layer(z, half)[0][1] == [1]
    first, _ = _layer(golden_exact("G2"), half)
    assert first[4:] == [[2, 3], [0, 1]]
    first, z = _layer(golden_exact("G2a"), half)
    assert first[5] == [0, 1, 6] and _layer(z, half)[0][5] == [0]
    first, z = _layer(golden_exact("G2b"), half)
    assert first[5] == [0, 1, 6, 7] and _layer(z, half)[0][5] == [0, 1, 6, 7]
    assert _layer(golden_exact("G2c"), half)[0][6] == [0, 1, 6]
    first, _ = _layer(golden_exact("G3"), half)
    assert first == [[0], [1], [2], [1], [1]]
    assert _layer(golden_exact("G4"), half)[0][4] == [5, 6]


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_floats_are_the_nearest_to_the_rationals(name):
    z = golden(name)
    for row, exact in zip(z, golden_exact(name), strict=True):
        assert [float(x) for x in exact] == list(row)


def test_golden_refuses_other_names():
    with pytest.raises(ValueError, match="G2b"):
        golden("G9")


def test_figure2_rows():
    assert [len(figure2(case)) for case in (1, 2, 3, 4)] == [9, 8, 10, 10]
    np.testing.assert_array_equal(figure2(1)[[0, 1, 2, 7, 8]], golden("G3"))
    assert (figure2(1)[3:5] >= 0).all() and (figure2(1)[5:7] <= 0).all()
    np.testing.assert_array_equal(figure2(2), golden("G1"))
    np.testing.assert_array_equal(figure2(2, seed=1), golden("G1"))
    np.testing.assert_array_equal(figure2(4)[:6], golden("G2"))
    assert np.abs(figure2(3)[4:]).max() <= 0.5 and np.abs(figure2(4)[6:]).max() <= 0.5
    assert not np.array_equal(figure2(3), figure2(3, seed=1))
    with pytest.raises(ValueError, match="1, 2, 3, 4"):
        figure2(0)


def test_rotated_square():
    np.testing.assert_array_equal(rotated_square(0), golden("G2"))
    np.testing.assert_allclose(rotated_square(np.pi / 2)[5], [0, 0.5], atol=1e-16)


# --- the reader ---------------------------------------------------------------------------------

GOOD = {
    "plain.csv": "1,2\n3,4\n",
    "header.csv": "x,y\n1,2\n3,4\n",
    "quoted.csv": '"x","y"\n1,2\n3,4\n',
    "semicolons.csv": "x;y\n1;2\n3;4",
    "spaces.txt": "  1   2\n3 4\n\n",
    "tabs.tsv": "x\ty\n1\t2\n3\t4\n",
    "comments.txt": "# tokens\n\n1 2  # first\n3 4\n",
    "padded.csv": "1, 2\n 3 ,4e0\n   \n",
    "windows.csv": "\ufeffx,y\r\n1,2\r\n3,4\r\n",
    "CAPITALS.CSV": "1,2\n3,4\n",
}


@pytest.mark.parametrize("name", GOOD)
def test_text_files(tmp_path: Path, name):
    path = tmp_path / name
    path.write_text(GOOD[name], encoding="utf-8", newline="")
    z = read(path)
    assert z.dtype == np.float64
    np.testing.assert_array_equal(z, [[1, 2], [3, 4]])
    np.testing.assert_array_equal(read(str(path)), z)


def test_one_column_is_dimension_one_and_one_line_is_one_token(tmp_path: Path):
    path = tmp_path / "z.csv"
    path.write_text("z\n1\n-2\n")
    np.testing.assert_array_equal(read(path), [[1], [-2]])
    path.write_text("1,2,3")
    np.testing.assert_array_equal(read(path), [[1, 2, 3]])


def test_fast_and_slow_readers_agree_bit_for_bit(tmp_path: Path):
    z = gaussian(200, 3) * 10.0 ** np.random.default_rng(1).integers(-300, 300, (200, 3))
    path = tmp_path / "z.csv"
    text = "\n".join(",".join(map(repr, row)) for row in z.tolist())
    path.write_text(text)
    np.testing.assert_array_equal(read(path), z)
    np.testing.assert_array_equal(_read_slowly(path, _rows(io.StringIO(text))), z)


BAD = {
    "empty.csv": ("", "empty"),
    "blank.csv": ("\n  \n# nothing\n", "empty"),
    "header_only.csv": ("x,y\n", "no token follows"),
    "ragged.csv": ("x,y\n1,2\n3,4,5\n", r"line 3 has 3 columns .* have 2"),
    "short.csv": ("1,2\n\n3\n", r"line 3 has 1 columns"),
    "word.csv": ("x,y\n1,2\n3,four\n", r"line 3, column 2: expected a number; got 'four'"),
    "mixed.csv": ("x,1\n1,2\n", r"line 1, column 1: .*'x'"),
    "hole.csv": ("1,2\n,4\n", r"line 2, column 1: .*an empty cell"),
    "comma.csv": ("1;2,5\n1;2\n", r"line 1, column 2: .*decimal point"),
    "literal.csv": ("1,2\n1_0,4\n", r"line 2, column 1: .*1_0"),
    "nan.csv": ("1,2\nnan,4\n", r"token 1, coordinate 0 is nan"),
    "inf.csv": ("1,2\n3,-inf\n", r"token 1, coordinate 1 is -inf"),
    "overflow.csv": ("1,1e999\n", r"token 0, coordinate 1 is inf"),
    "text.npy": ("1,2\n3,4\n", r"not a readable .npy file; if it is text, name it .csv"),
    "text.npz": ("1,2\n3,4\n", r"not a readable .npz"),
    "empty.npy": ("", "not a readable"),
    "table.xlsx": ("1", r"expected one of .csv"),
    "noending": ("1,2", "no ending"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files_are_refused_with_the_place(tmp_path: Path, name):
    text, message = BAD[name]
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(ValueError, match=message) as e:
        read(path)
    assert name in str(e.value)


def test_missing_file_and_folder(tmp_path: Path):
    (tmp_path / "there.csv").write_text("1")
    with pytest.raises(FileNotFoundError, match=r"does not exist.*there\.csv"):
        read(tmp_path / "absent.csv")
    with pytest.raises(FileNotFoundError, match="does not exist"):
        read(tmp_path / "no" / "folder.csv")
    with pytest.raises(FileNotFoundError, match="is a folder"):
        read(tmp_path)


def test_binary_text_is_refused(tmp_path: Path):
    path = tmp_path / "z.csv"
    path.write_bytes("1,2\n".encode("utf-16"))
    with pytest.raises(ValueError, match="UTF-8"):
        read(path)
    path.write_bytes(b"1,2\n" * 30_000 + b"\xff,2\n")
    with pytest.raises(ValueError, match="UTF-8"):
        read(path)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int32, np.bool_])
def test_array_files(tmp_path: Path, dtype):
    z = np.array([[1, 0], [0, 1], [1, 1]], dtype)
    np.save(tmp_path / "z.npy", np.asfortranarray(z))
    np.savez(tmp_path / "one.npz", z=z, t=1)
    np.savez(tmp_path / "two.npz", z=z[None], z0=z)
    for name in ("z.npy", "one.npz", "two.npz"):
        got = read(tmp_path / name)
        assert got.dtype == np.float64 and got.flags.c_contiguous
        np.testing.assert_array_equal(got, z)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros(3), r"shape \(3,\).*z\[:, None\]"),
        (np.zeros((2, 3, 4)), r"shape \(2, 3, 4\)"),
        (np.zeros((0, 2)), "at least one token"),
        (np.array([[1j]]), "complex"),
        (np.array([["a"]]), "real numbers"),
        (np.array([[np.nan]]), "token 0, coordinate 0 is nan"),
        (np.array([[1, None]], dtype=object), "Python objects"),
    ],
)
def test_bad_arrays(tmp_path: Path, array, message):
    np.save(tmp_path / "z.npy", array)
    np.savez(tmp_path / "z.npz", z=array)
    for name in ("z.npy", "z.npz"):
        with pytest.raises(ValueError, match=message):
            read(tmp_path / name)


def test_foreign_and_cut_archives(tmp_path: Path):
    np.savez(tmp_path / "other.npz", weights=np.zeros((2, 2)))
    with pytest.raises(ValueError, match="z0 or z; it holds weights"):
        read(tmp_path / "other.npz")
    with zipfile.ZipFile(tmp_path / "foreign.npz", "w") as f:
        f.writestr("z.npy", "not an array")
    np.save(tmp_path / "cut.npy", np.zeros((50, 2)))
    for name in ("other.npz", "cut.npy"):
        whole = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(whole[: len(whole) - 40])
    for name in ("foreign.npz", "other.npz", "cut.npy"):
        with pytest.raises(ValueError, match=name):
            read(tmp_path / name)
