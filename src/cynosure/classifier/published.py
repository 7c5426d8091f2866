"""The trained sentiment model of arXiv 2407.01602, from its authors' file or from arrays.

    z <- (z + alpha P z) / (1 + alpha) for 8 layers,   decision = b + <v, mean of the tokens>

A text is its first 128 words, filled up with the padding token, which takes part as it did in the
published run. Repeated words are repeated tokens.
"""

from __future__ import annotations

import pickletools
import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .._files import read_bytes
from ..analysis.leaders import roles
from ..attention import Hardmax
from ..dynamics import PureAttention
from ..simulation.loop import simulate
from ..simulation.trajectory import Trajectory
from .text.stop_words import STOP_WORDS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["PublishedModel", "TextReading", "load_published", "published_words"]

PADDING = "(padding)"
_BATCH = 256  # texts that go through the layers at once
_LARGEST = 1 << 32  # bytes of a file
_ARRAYS = "encoder.weight", "attention.alpha", "decoder.weight", "decoder.bias"

_PLURALS = (
    ("s", ""), ("ses", "s"), ("ves", "f"), ("xes", "x"), ("zes", "z"), ("ches", "ch"),
    ("shes", "sh"), ("men", "man"), ("ies", "y"),
)  # fmt: skip
_IRREGULAR = {
    "goes": "go", "children": "child", "feet": "foot", "us": "u", "less": "le", "boss": "bos",
    "pass": "pas", "lives": "life", "heroes": "hero", "wives": "wife", "mice": "mouse",
    "gonna": "gon na", "wanna": "wan na", "gotta": "got ta", "cannot": "", "ass": "",
}  # fmt: skip
_REMOVED = (
    (r"https?://\S+|www\.\S+", ""), (r"<.*?>", ""), (r"[!-/:-@\[-`{-~]", " "), (r"\d+", ""),
    (r"[^\x00-\x7f]+", ""), (r"(\w)\1{2,}", r"\1\1"),
)  # fmt: skip


def published_words(text: str, known: Mapping[str, Any]) -> list[str]:
    """The words of a text as the paper prepares it; `known` are those of its vocabulary.

    Links, tags, punctuation, digits, other characters than ASCII and stop words go; a letter stands
    at most twice in a row; nouns become singular, by rules of spelling where the result is a known
    word (the paper asks WordNet)."""
    for pattern, replacement in _REMOVED:
        text = re.sub(pattern, replacement, text)
    words = (_singular(word, known) for word in text.split() if word not in STOP_WORDS)
    return [part for word in words for part in word.split()]


def _singular(word: str, known: Mapping[str, Any]) -> str:
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    forms = [word]
    while forms:
        if found := [form for form in forms if form in known]:
            return min(found, key=len)
        forms = [
            form[: -len(end)] + singular
            for form in forms
            for end, singular in _PLURALS
            if form.endswith(end) and len(form) > len(end)
        ]
    return word


class TextReading(NamedTuple):
    """One text in the layers: the words that were read, their run, the mean token, the log-odds,
    the words that lead, and the words that the vocabulary does not have."""

    words: tuple[str, ...]
    trajectory: Trajectory
    mean: np.ndarray
    decision: float
    leaders: tuple[str, ...]
    unknown: tuple[str, ...]

    def __repr__(self) -> str:
        told = ", ".join(self.leaders[:6]) + (" ..." if len(self.leaders) > 6 else "")
        said = f"decision={self.decision:.4f}, words={len(self.words)}"
        return f"TextReading({said}, leaders: {told})"


@dataclass(frozen=True, eq=False, repr=False)
class PublishedModel:
    """Hardmax layers on a learned embedding, and a linear decision on the mean token.

    Parameters
    ----------
    embedding : array (rows, d)
        One token for each word.
    alpha : float
        Step of the layers, positive.
    decoder : array (d,)
        v of the decision b + <v, mean>.
    bias : float
        b of the decision.
    words : sequence of str, optional
        The word of each row; needed to read texts. Row numbers can be read without it.
    layers : int
        Number of layers.
    length : int
        Words of a text that are read.
    padding : int or None
        Row that fills short texts and takes part; None leaves them short.

    Examples
    --------
    >>> import cynosure as cy
    >>> model = cy.classifier.PublishedModel(
    ...     [[0, 0], [2, 0], [0, 1]], 1.0, [1, -1], 0.0, ["", "good", "bad"], padding=None)
    >>> model.read("good bad good").leaders
    ('good', 'bad')
    """

    embedding: Any
    alpha: float
    decoder: Any
    bias: float
    words: Sequence[str] | None = None
    layers: int = 8
    length: int = 128
    padding: int | None = 0

    def __post_init__(self) -> None:
        embedding, decoder = (np.asarray(x, np.float64) for x in (self.embedding, self.decoder))
        if embedding.ndim != 2 or decoder.shape != embedding.shape[1:]:
            raise ValueError(
                "embedding, decoder: expected shapes (rows, d) and (d,), got "
                f"{embedding.shape} and {decoder.shape}"
            )
        if self.words is not None and len(self.words) != len(embedding):
            raise ValueError(
                f"words: expected one for each of {len(embedding)} rows, got {len(self.words)}"
            )
        if not (np.isfinite(embedding).all() and np.isfinite(decoder).all()):
            raise ValueError("embedding, decoder: expected finite numbers")
        if self.padding is not None and not 0 <= self.padding < len(embedding):
            raise ValueError(f"padding: expected a row below {len(embedding)}, got {self.padding}")
        object.__setattr__(self, "embedding", embedding)
        object.__setattr__(self, "decoder", decoder)
        _ = self.dynamics  # refuses a step that is none

    def __repr__(self) -> str:
        rows, d = self.embedding.shape
        said = f"{rows} words in R^{d}, alpha={self.alpha:.5g}"
        return f"PublishedModel({said}, {self.layers} layers)"

    @cached_property
    def dynamics(self) -> PureAttention:
        """One layer."""
        return PureAttention(Hardmax(), alpha=self.alpha)

    @cached_property
    def rows(self) -> dict[str, int]:
        """Word -> row."""
        if self.words is None:
            raise ValueError(
                "words: this model has no vocabulary; give vocabulary=, or row numbers"
            )
        return {word: row for row, word in enumerate(self.words) if row != self.padding}

    def rows_of(self, text: str | Sequence[str] | np.ndarray) -> np.ndarray:
        """Rows of the words that are read: of a text, of a list of words, of row numbers."""
        return self._read(text)[0]

    def _read(self, text: str | Sequence[str] | np.ndarray) -> tuple[np.ndarray, tuple[str, ...]]:
        unknown: tuple[str, ...] = ()
        given: Any = published_words(text, self.rows) if isinstance(text, str) else text
        if len(given) and isinstance(given[0], str):
            unknown = tuple(dict.fromkeys(word for word in given if word not in self.rows))
            given = [self.rows[word] for word in given if word in self.rows]
        rows = np.asarray(given)[: self.length]
        if rows.size and (rows.dtype.kind not in "iu" or rows.ndim != 1):
            raise TypeError("text: expected a text, words, or row numbers of whole numbers")
        rows = rows.astype(np.intp)
        if rows.size and not 0 <= rows.min() <= rows.max() < len(self.embedding):
            raise ValueError(f"text: row numbers lie from 0 to {len(self.embedding) - 1}")
        if self.padding is not None:
            rows = np.pad(rows, (0, self.length - len(rows)), constant_values=self.padding)
        if not len(rows):
            raise ValueError("text: no word of it is in the vocabulary")
        return rows, unknown

    def read(self, text: str | Sequence[str] | np.ndarray) -> TextReading:
        """One text through the layers."""
        rows, unknown = self._read(text)
        words = tuple(self._name(row) for row in rows.tolist())
        run = simulate(self.dynamics, self.embedding[rows], layers=self.layers, words=words)
        mean = run.values[-1].mean(axis=0)
        led = roles(run).led_at(self.layers)
        leaders = tuple(dict.fromkeys(words[i] for i in led))
        return TextReading(words, run, mean, float(self._decided(mean)), leaders, unknown)

    def decision_function(self, texts: Sequence[str | Sequence[str] | np.ndarray]) -> np.ndarray:
        """Log-odds of each text."""
        every = [self.rows_of(text) for text in texts]
        out = np.empty(len(every))
        sizes = np.array([len(rows) for rows in every])
        for size in np.unique(sizes):
            same = np.flatnonzero(sizes == size)
            for start in range(0, len(same), _BATCH):
                some = same[start : start + _BATCH]
                z = self.embedding[np.stack([every[i] for i in some])]
                run = simulate(self.dynamics, z, layers=self.layers, save_every=max(self.layers, 1))
                out[some] = self._decided(run.values[-1].mean(axis=1))
        return out

    def predict(self, texts: Sequence[str | Sequence[str] | np.ndarray]) -> np.ndarray:
        """1 where the log-odds are positive, else 0."""
        return (self.decision_function(texts) > 0).astype(int)

    def picture(
        self, text: str | Sequence[str] | np.ndarray, show: Sequence[int] | None = None
    ) -> Figure:
        """One text at some layers: leaders by name, the mean token, and in the plane the two sides
        of the decision."""
        from ..drawing import plot

        reading = self.read(text)
        shown = (0, self.layers) if show is None else tuple(show)
        figure = plot.layers(reading.trajectory, show=shown)
        if self.embedding.shape[1] != 2:
            return figure
        v, along = self.decoder, np.array([-self.decoder[1], self.decoder[0]])
        line = -self.bias * v / (v @ v) + np.outer([-1e3, 1e3], along / np.linalg.norm(v))
        for ax, k in zip(figure.axes, shown):
            z, box = reading.trajectory.at(k), {"xlim": ax.get_xlim(), "ylim": ax.get_ylim()}
            for colour, side in zip(plot.PALETTE, (1.0, -1.0)):
                far = line + side * 2e3 * v / np.linalg.norm(v)
                corners = np.concatenate((line, far[::-1]))
                ax.fill(*corners.T, color=colour, alpha=0.1, lw=0, zorder=0)
            ax.plot(*line.T, color=plot.INK, lw=1.0, ls="--", zorder=1)
            ax.plot(*z.mean(axis=0), "X", color=plot.INK, ms=8, mec="white", zorder=12)
            ax.set(**box)
            named = {reading.words[i]: i for i in roles(reading.trajectory).led_at(k)}
            for word, i in named.items():
                ax.annotate(
                    word, z[i], xytext=(4, 4), textcoords="offset points", fontsize=plot.TICK,
                    zorder=13,
                )  # fmt: skip
        return figure

    def _decided(self, mean: np.ndarray) -> Any:
        return mean @ self.decoder + self.bias

    def _name(self, row: int) -> str:
        named = str(row) if self.words is None else self.words[row]
        return PADDING if row == self.padding else named


def load_published(path: str | Path, vocabulary: str | Path | None = None) -> PublishedModel:
    """Opens the trained model of arXiv 2407.01602, which its authors published as a `.pth` file.

    The file is a pickled module, but it is never unpickled: the arrays are read from the zip, and
    the pickle's instructions are inspected, not executed.

    Parameters
    ----------
    path : path
        The `.pth` file, or a folder that holds one and perhaps `vocabulary.tsv`.
    vocabulary : path, optional
        Lines `row <tab> word`; row 0 is the padding. Needed to read texts.

    Returns
    -------
    PublishedModel

    Raises
    ------
    ValueError
        Where the file holds anything but an embedding, a step and a linear decoder.

    Examples
    --------
    >>> import cynosure as cy
    >>> model = cy.load_published("model_d=2_epoch=100.pth", "vocabulary.tsv")  # doctest: +SKIP
    """
    path = Path(path)
    if path.is_dir():
        files = sorted(path.glob("*.pth"))
        if len(files) != 1:
            raise ValueError(f"{path}: expected one .pth file in this folder, found {len(files)}")
        if vocabulary is None and (path / "vocabulary.tsv").is_file():
            vocabulary = path / "vocabulary.tsv"
        path = files[0]
    arrays = dict(_arrays(path))
    if missing := [name for name in _ARRAYS if name not in arrays]:
        raise ValueError(
            f"{path}: no {missing[0]} in it; expected {', '.join(_ARRAYS[:3])} and {_ARRAYS[3]}, "
            f"found {', '.join(arrays) or 'nothing'}"
        )
    embedding, alpha, decoder, bias = map(arrays.__getitem__, _ARRAYS)
    if embedding.ndim != 2 or decoder.size != embedding.shape[1] or alpha.size != 1:
        raise ValueError(f"{path}: its arrays do not fit each other")
    words = None if vocabulary is None else _vocabulary(Path(vocabulary), len(embedding))
    step = float(alpha.reshape(()))
    return PublishedModel(embedding, step, decoder.reshape(-1), float(bias.reshape(())), words)


def _vocabulary(path: Path, rows: int) -> tuple[str, ...]:
    words = [""] * rows
    for number, line in enumerate(read_bytes(path, _LARGEST).decode("utf-8").splitlines(), 1):
        row, _, word = line.partition("\t")
        if not row.isdecimal() or not 0 < int(row) < rows or not word:
            raise ValueError(f"{path}, line {number}: expected a row below {rows}, a tab, a word")
        words[int(row)] = word
    return tuple(words)


def _arrays(path: Path) -> Iterator[tuple[str, np.ndarray]]:
    """Name and values of every array in the file of a saved module."""
    try:
        archive = zipfile.ZipFile(path)
    except zipfile.BadZipFile:
        raise ValueError(f"{path}: no zip, so not a file of torch.save; nothing was read") from None
    with archive:
        inside = {info.filename.partition("/")[2]: info for info in archive.infolist()}
        if "data.pkl" not in inside or any(i.compress_type for i in inside.values()):
            raise ValueError(f"{path}: not laid out as torch.save does; nothing was read")
        if "byteorder" in inside and archive.read(inside["byteorder"]) != b"little":
            raise ValueError(f"{path}: its numbers are not little-endian")
        for name, key, count, shape in _described(archive.read(inside["data.pkl"])):
            data = archive.read(inside[f"data/{key}"]) if f"data/{key}" in inside else b""
            if len(data) != 4 * count or int(np.prod(shape)) != count:
                raise ValueError(f"{path}: {name} is cut short or of another type than float32")
            yield name, np.frombuffer(data, "<f4").reshape(shape).astype(np.float64)


def _described(instructions: bytes) -> Iterator[tuple[str, str, int, tuple[int, ...]]]:
    """(module.name, storage, numbers, shape) of each float array that the instructions mention: the
    words "storage", its type, key, device and count, then offset, shape and strides."""
    module, name = "", ""
    last: Any = None
    memo: dict[Any, Any] = {}  # texts and types that are mentioned again by number
    words: list[Any] = []  # since the last "storage"
    try:
        for opcode, value, _ in pickletools.genops(instructions):
            if opcode.name in ("BINPUT", "LONG_BINPUT"):
                memo[value] = last
                continue
            said = opcode.name in ("BINUNICODE", "GLOBAL", "BININT", "BININT1", "BININT2")
            last = value if said else memo.get(value) if "BINGET" in opcode.name else None
            if last == "storage":
                words = []
            if last in ("encoder", "attention", "decoder"):
                module = str(last)
            elif last in ("weight", "bias", "alpha"):
                name = str(last)
            if last is not None:
                words.append(last)
            elif opcode.name in ("TUPLE1", "TUPLE2") and words[:1] == ["storage"]:
                _, kind, key, _, count, offset, *shape = words
                if kind == "torch FloatStorage" and offset == 0:
                    yield f"{module}.{name}", str(key), int(count), tuple(map(int, shape))
                words = []
    except (ValueError, IndexError, UnicodeDecodeError) as error:
        raise ValueError(f"data.pkl: cannot be followed ({error}); nothing was read") from None
