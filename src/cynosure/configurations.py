"""Named initial tokens, always seeded, and the reader of token files.

Every entry of ``CONFIGURATIONS`` returns tokens z as rows, a float64 array of shape (n, d), and can
be called without arguments. Randomness comes from ``numpy.random.default_rng(seed)`` and from
nowhere else, so the same call gives the same tokens.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import islice
from pathlib import Path

import numpy as np

_Exact = list[tuple[Fraction, ...]]

_SQUARE = "1,1 1,-1 -1,-1 -1,1"
_TIED_SQUARE = f"{_SQUARE} -1/2,0 1/2,0"
_EMERGING = "1,1/3 -1/12,1/12 -1,-1 0,1/4 -3/10,-7/10 -3/5,-9/10 4/5,1/10 3/5,3/20"
_TRIANGLE = "1,1 1/2,-1/2 -1,-1"

_GOLDEN = {
    "G1": _EMERGING,
    "G2": _TIED_SQUARE,
    "G2a": f"{_TIED_SQUARE} 1,3/10",
    "G2b": f"{_TIED_SQUARE} 1,3/10 1,-3/10",
    "G2c": f"{_TIED_SQUARE} 1,0",
    "G3": f"{_TRIANGLE} 3/10,-1/5 1/10,-1/5",
    "G4": f"{_SQUARE} 1/2,0 11/10,7/10 11/10,-7/10",
}
GOLDEN: tuple[str, ...] = tuple(_GOLDEN)


def golden_exact(name: str = "G1") -> _Exact:
    """The golden tokens as rationals; their fate for A = I is known exactly.

    * G1  an emerging leader: for alpha = 1/2 token 1 leads from layer 1 at (-1/18, 5/36), for
      alpha = 1 at (-1/24, 1/6); for alpha = 1/10, 2, 10 it never leads.
    * G2  square with (-1/2, 0), (1/2, 0): tokens 4 and 5 tie on two corners for ever and tend to
      (-1, 0) and (1, 0), which are not leaders. G2a adds (1, 3/10), which breaks the tie after one
      layer; G2b adds (1, 3/10) and (1, -3/10), which keeps it; G2c adds (1, 0), fixed, no leader.
    * G3  triangle whose three corners lead although one of them is short.
    * G4  token 4 seems to tend to (1, 0) but becomes a leader (layer 61 for alpha = 1/10).
    """
    if name not in _GOLDEN:
        raise ValueError(f"golden configurations are {', '.join(GOLDEN)}; got {name!r}")
    return [tuple(map(Fraction, token.split(","))) for token in _GOLDEN[name].split()]


def golden(name: str = "G1") -> np.ndarray:
    """``golden_exact(name)`` rounded to float64.

    Trap: 3/10 is not a float. G2 and G2c are unchanged by rounding; in the others the rounded
    tokens are neighbours of the exact ones, and a tie between rounded tokens is another question.
    """
    return np.array([[float(x) for x in token] for token in golden_exact(name)])


FIGURE2_ALPHA = 0.5
FIGURE2_LAYERS = (0, 1, 2, 5, 30)


def figure2(case: int = 1, seed: int = 0) -> np.ndarray:
    """Row ``case`` of Figure 2 of arXiv 2407.01602 (A = I, alpha = 1/2, layers 0, 1, 2, 5, 30).

    1. triangular polytope: corners (1,1), (1/2,-1/2), (-1,-1), then two tokens uniform in [0,1]^2,
       two uniform in [-1,0]^2, then (3/10,-1/5), (1/10,-1/5);
    2. emerging leader: golden case G1, no random token;
    3. square polytope: corners (+-1,+-1) and six tokens uniform in [-1/2,1/2]^2;
    4. clusters without a leader: golden case G2 and four tokens uniform in [-1/2,1/2]^2.

    The fixed tokens and the laws of the random ones are those of the published notebook. That
    notebook is unseeded, so the random tokens printed in the paper cannot be recovered: rows 1, 3
    and 4 are seeded stand-ins, row 2 is the paper's own data.
    """
    rng = np.random.default_rng(seed)
    if case == 1:
        g3 = golden("G3")
        above, below = rng.uniform(0, 1, (2, 2)), rng.uniform(-1, 0, (2, 2))
        return np.concatenate([g3[:3], above, below, g3[3:]])
    if case == 2:
        return golden("G1")
    if case == 3:
        return np.concatenate([golden("G2")[:4], rng.uniform(-0.5, 0.5, (6, 2))])
    if case == 4:
        return np.concatenate([golden("G2"), rng.uniform(-0.5, 0.5, (4, 2))])
    raise ValueError(f"Figure 2 has the cases 1, 2, 3, 4; got {case!r}")


def gaussian(n: int = 30, d: int = 2, seed: int = 0) -> np.ndarray:
    """n independent tokens N(0, I_d)."""
    return np.random.default_rng(seed).standard_normal(_shape(n, d))


def box(n: int = 30, d: int = 2, seed: int = 0) -> np.ndarray:
    """n independent tokens, uniform in [-1, 1]^d."""
    return np.random.default_rng(seed).uniform(-1, 1, _shape(n, d))


def sphere(n: int = 30, d: int = 2, seed: int = 0) -> np.ndarray:
    """n independent tokens, uniform on the unit sphere of R^d.

    With A = I all norms agree up to rounding, so every token leads and nothing moves.
    """
    z = np.random.default_rng(seed).standard_normal(_shape(n, d))
    return z / np.linalg.norm(z, axis=1, keepdims=True)


def ball(n: int = 30, d: int = 2, seed: int = 0) -> np.ndarray:
    """n independent tokens, uniform in the unit ball of R^d: r u, u on the sphere, r^d uniform."""
    rng = np.random.default_rng(seed)
    z = rng.standard_normal(_shape(n, d))
    radius = rng.uniform(size=(n, 1)) ** (1 / d)
    return z * (radius / np.linalg.norm(z, axis=1, keepdims=True))


def polygon(
    n: int = 6,
    radius: float | int = 1,
    phase: float | int = 0,
    interior: int = 0,
    seed: int = 0,
) -> np.ndarray:
    """Regular n-gon radius (cos(phase + 2 pi i/n), sin(...)), then tokens uniform inside it.

    The corners have equal norms, so in exact arithmetic all lead and the cells of the interior
    tokens are the Voronoi cells of the corners (arXiv 2508.09628); in float64 the corners agree
    only to rounding.
    """
    if n < 3:
        raise ValueError(f"a polygon has n >= 3 corners; got n = {n}")
    if not radius > 0 or interior < 0:
        raise ValueError(f"need radius > 0 and interior >= 0; got {radius} and {interior}")
    angle = phase + 2 * np.pi * np.arange(n) / n
    corners = radius * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    rng = np.random.default_rng(seed)
    # The n triangles (0, corner i, corner i+1) have equal areas: pick one, then fold the square.
    i = rng.integers(n, size=interior)
    s, t = rng.uniform(size=(2, interior, 1))
    s, t = np.where(s + t > 1, 1 - s, s), np.where(s + t > 1, 1 - t, t)
    return np.concatenate([corners, s * corners[i] + t * corners[(i + 1) % n]])


def grid(n: int = 12, d: int = 2, seed: int = 0, size: int = 3) -> np.ndarray:
    """n independent tokens with integer coordinates uniform in -size..size.

    Scores tie often, tokens may coincide and may be zero: meant for testing exact ties.
    """
    if size < 0:
        raise ValueError(f"size is the largest coordinate, at least 0; got {size}")
    return np.random.default_rng(seed).integers(-size, size + 1, _shape(n, d)).astype(np.float64)


def rotated_square(angle: float | int = np.pi / 7) -> np.ndarray:
    """Golden case G2 turned by ``angle`` and rounded to float64.

    The exact rotation keeps the ties of G2 on the corners. Taken as exact data, the rounded tokens
    do for some angles only: rounding breaks the tie for the others.
    """
    c, s = np.cos(angle), np.sin(angle)
    return golden("G2") @ np.array([[c, s], [-s, c]])


CONFIGURATIONS: dict[str, Callable[..., np.ndarray]] = {
    f.__name__: f
    for f in (figure2, golden, gaussian, ball, box, sphere, polygon, grid, rotated_square)
}


def _shape(n: int, d: int) -> tuple[int, int]:
    if n < 1 or d < 1:
        raise ValueError(f"need n >= 1 tokens in dimension d >= 1; got n = {n}, d = {d}")
    return n, d


_TEXT = (".csv", ".tsv", ".txt")


def read(path: str | os.PathLike[str]) -> np.ndarray:
    """Tokens from a file: one token per line (.csv, .tsv, .txt) or an (n, d) array (.npy, .npz).

    Text: cells separated by semicolons, commas or blanks (found on the first line), an optional
    header line without any number, ``#`` starts a comment, blank lines are skipped. One column is
    dimension d = 1. An .npz file holds the tokens under ``z0`` or ``z``. Nothing is unpickled.
    Raises FileNotFoundError, or ValueError naming the line and column to mend.
    """
    path = Path(path)
    if not path.is_file():
        near = sorted(p.name for p in islice(path.parent.glob("*"), 1000) if p.suffix in _ALL)[:5]
        found = f"; that folder holds {', '.join(near)}" if near else ""
        what = "is a folder" if path.is_dir() else "does not exist"
        raise FileNotFoundError(f"{path} {what}; expected a token file ({', '.join(_ALL)}){found}")
    suffix = path.suffix.lower()
    if suffix not in _ALL:
        raise ValueError(f"{path}: expected one of {', '.join(_ALL)}; got {suffix or 'no ending'}")
    z = _read_text(path) if suffix in _TEXT else _as_matrix(_read_array(path, suffix), path)
    bad = np.argwhere(~np.isfinite(z))
    if len(bad):
        i, j = bad[0]
        raise ValueError(
            f"{path}: token {i}, coordinate {j} is {z[i, j]}; tokens must be finite,"
            " remove or replace such tokens"
        )
    return z


_ALL = (*_TEXT, ".npy", ".npz")


def _read_array(path: Path, suffix: str) -> np.ndarray:
    try:
        with path.open("rb") as file:  # numpy.load leaves a damaged archive open
            loaded = np.load(file, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                return loaded
            keys = [key for key in ("z0", "z") if key in loaded.files]
            if not keys:
                raise KeyError(", ".join(loaded.files) or "nothing")
            z = loaded[keys[0]]
            if not isinstance(z, np.ndarray):  # a foreign zip member comes back as bytes
                raise ValueError(f"{keys[0]} is not an array")
            return z
    except KeyError as e:
        raise ValueError(
            f"{path}: expected tokens under the name z0 or z; it holds {e.args[0]}"
        ) from None
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as e:
        if "Object arrays" in str(e):
            raise ValueError(
                f"{path}: holds Python objects, which are never unpickled; save a plain float"
                " array with numpy.save"
            ) from None
        raise ValueError(
            f"{path}: not a readable {suffix} file; if it is text, name it .csv, else save it"
            f" again with numpy.save{'z' if suffix == '.npz' else ''}"
        ) from None


def _as_matrix(z: np.ndarray, path: Path) -> np.ndarray:
    if z.dtype.kind not in "fiub":
        raise ValueError(f"{path}: expected real numbers; got an array of type {z.dtype}")
    if z.ndim == 1:
        raise ValueError(
            f"{path}: expected an (n, d) array, one token per row; got shape {z.shape}; save"
            " z[:, None] for n tokens on the line or z[None] for a single token"
        )
    if z.ndim != 2:
        raise ValueError(
            f"{path}: expected an (n, d) array, one token per row; got shape {z.shape}; save one"
            " configuration, for instance z[0]"
        )
    if z.size == 0:
        raise ValueError(f"{path}: expected at least one token; got shape {z.shape}")
    return np.ascontiguousarray(z, dtype=np.float64)


def _read_text(path: Path) -> np.ndarray:
    try:
        with path.open(encoding="utf-8-sig") as lines:
            first = list(islice(_rows(lines), 2))
        if not first:
            raise ValueError(f"{path}: the file is empty; expected one token per line")
        header = not any(map(_is_number, first[0][1]))
        if header and len(first) == 1:
            raise ValueError(
                f"{path}: line {first[0][0]} is {' '.join(first[0][1])!r} and no token follows;"
                " expected one token per line, as numbers"
            )
        try:
            return np.loadtxt(
                path,
                delimiter=first[0][2],
                skiprows=first[0][0] if header else 0,
                ndmin=2,
                encoding="utf-8-sig",
            )
        except UnicodeDecodeError:
            raise
        except ValueError:
            # loadtxt is fast but its messages name no column; the slow reader finds the cell.
            with path.open(encoding="utf-8-sig") as lines:
                return _read_slowly(path, islice(_rows(lines), header, None))
    except UnicodeDecodeError as e:
        raise ValueError(
            f"{path}: not a text file in UTF-8 ({e.reason} at byte {e.start}); save it as UTF-8 CSV"
        ) from None


def _read_slowly(path: Path, rows: Iterator[tuple[int, list[str], str | None]]) -> np.ndarray:
    """The reference reader: every cell with Python's float, every complaint with its place."""
    z: list[list[float]] = []
    for line, cells, _ in rows:
        for column, cell in enumerate(cells, 1):
            if not _is_number(cell):
                found = repr(cell) if cell else "an empty cell"
                hint = "; use a decimal point" if _is_number(cell.replace(",", ".")) else ""
                raise ValueError(
                    f"{path}: line {line}, column {column}: expected a number; got {found}{hint}"
                )
        if z and len(cells) != len(z[0]):
            raise ValueError(
                f"{path}: line {line} has {len(cells)} columns where the lines above have"
                f" {len(z[0])}; every token needs the same dimension"
            )
        z.append([float(cell) for cell in cells])
    return np.array(z)


def _rows(lines: Iterator[str]) -> Iterator[tuple[int, list[str], str | None]]:
    """(line number, cells, delimiter) of every line that is neither blank nor a comment."""
    delimiter: str | None = ""
    for number, raw in enumerate(lines, 1):
        line = raw.split("#", 1)[0].strip()
        if not line:
            continue
        if delimiter == "":
            delimiter = next((c for c in ";," if c in line), None)
        yield number, [cell.strip() for cell in line.split(delimiter)], delimiter


def _is_number(cell: str) -> bool:
    # float() also takes the underscores of Python literals; no table means a number by 1_0.
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell
