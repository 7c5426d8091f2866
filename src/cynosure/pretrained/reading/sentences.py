"""Sentence: a text as a model reads it, with the word each token belongs to."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from ..._types import is_torch
from ..loading.images import Grid, Seen, seen


@final
@dataclass(frozen=True)
class Sentence:
    """Token ids, readable pieces, the word each piece belongs to, the words, and what was cut; of a
    picture, what is seen of it and where its patches are."""

    ids: tuple[int, ...] = ()
    pieces: tuple[str, ...] | None = None
    groups: tuple[int, ...] | None = None
    names: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()
    look: Seen | None = None
    grid: Grid | None = None


def of_ids(tokens: Any, tokenizer: Any, vocabulary: int, most: int) -> Sentence:
    """A non-empty sequence of at most `most` ids below `vocabulary`."""
    try:
        ids = np.asarray(tokens.detach().cpu() if is_torch(tokens) else tokens)
    except ValueError:
        ids = np.empty(0)
    if ids.ndim != 1 or ids.dtype.kind not in "iu" or len(ids) == 0:
        raise TypeError(
            "tokens: expected a text, a non-empty sequence of token ids, or an array (n, d) of "
            f"floats, for this model reads no pictures; got {type(tokens).__name__} of shape "
            f"{ids.shape}"
        )
    if ids.min() < 0 or ids.max() >= vocabulary:
        raise ValueError(
            f"tokens: ids run from 0 to {vocabulary - 1}, got {ids.min()} to {ids.max()}"
        )
    if len(ids) > most:
        raise ValueError(f"tokens: the model takes at most {most}, got {len(ids)}")
    listed = ids.tolist()
    pieces = None if tokenizer is None else map(str, tokenizer.convert_ids_to_tokens(listed))
    return Sentence(tuple(listed), None if pieces is None else tuple(pieces))


def of_picture(picture: Any, processor: Any, shape: tuple[int, ...], grid: Grid) -> Sentence:
    """A picture, or numbers (channels, height, width); its tokens are named by their places."""
    look, names = seen(picture, processor, shape), grid.names
    return Sentence((), names, tuple(range(len(names))), names, look.notes, look, grid)


def of_text(text: str, tokenizer: Any, vocabulary: int, most: int) -> Sentence:
    """A text of any length; past `most` tokens it is cut, with a warning that says where.

    A tokenizer whose ids reach beyond the model's `vocabulary` belongs to another model.
    """
    if tokenizer is None:
        raise ValueError(
            "text: the model came without a tokenizer; add tokenizer.json to its folder, pass "
            "tokenizer= to load_transformer, or give token ids"
        )
    if not text.strip():
        raise ValueError("text: empty; expected at least one word")
    wanted = ("return_offsets_mapping", "return_special_tokens_mask")
    options = dict.fromkeys(wanted, True) | {"verbose": False}
    read = tokenizer(text, **options)
    if all(read["special_tokens_mask"]):
        raise ValueError(f"text: the tokenizer finds no token in {text[:40]!r}")
    notes: tuple[str, ...] = ()
    length = len(read["input_ids"])
    if length > most:
        read = tokenizer(text, truncation=True, max_length=most, **options)
        cut = max(end for _, end in read["offset_mapping"])
        lost = text[cut:].strip()
        notes = (
            f"The text has {length} tokens, the model takes {most}: cut after character {cut} of "
            f"{len(text)}, left out is {lost[:60] + ('...' if len(lost) > 60 else '')!r}.",
        )
        warnings.warn(notes[0], stacklevel=4)
    ids = tuple(read["input_ids"])
    if max(ids) >= vocabulary:
        piece = tokenizer.convert_ids_to_tokens(max(ids))
        raise ValueError(
            f"tokenizer: it gives {piece!r} the id {max(ids)}, and the model knows 0 to "
            f"{vocabulary - 1}: it belongs to another model; pass tokenizer=, or the right folder"
        )
    special = [bool(s) for s in read["special_tokens_mask"]]
    raw = tokenizer.convert_ids_to_tokens(list(ids))
    pieces, groups, names = word_pieces(text, raw, special, read["offset_mapping"], read.word_ids())
    unknown = tokenizer.unk_token
    strange = [
        piece
        for piece, id_, made in zip(pieces, ids, special, strict=True)
        if id_ == tokenizer.unk_token_id and not made and piece != unknown
    ]
    if strange:
        shown = ", ".join(map(repr, dict.fromkeys(strange[:8]))) + " ..." * (len(strange) > 8)
        said = f"{len(strange)} pieces are unknown to the tokenizer, and the model reads each of "
        notes = (*notes, f"{said}them as {unknown!r}: {shown}.")
        warnings.warn(notes[-1], stacklevel=4)
    return Sentence(ids, pieces, groups, names, notes)


def word_pieces(
    text: str,
    raw: Sequence[str],
    special: Sequence[bool],
    offsets: Sequence[tuple[int, int]],
    word_ids: Sequence[int | None],
) -> tuple[tuple[str, ...], tuple[int, ...], tuple[str, ...]]:
    """Pieces as they stand in the text ("##" when inside a word), word of each piece, words. By
    offsets: the strings of byte-level tokenizers cannot be read."""
    pieces: list[str] = []
    groups: list[int] = []
    spans: list[tuple[int, int, str]] = []
    for i, (start, end) in enumerate(offsets):
        inside = i > 0 and not special[i] and word_ids[i] == word_ids[i - 1] is not None
        blank = text[start:end].isspace()  # byte-level: a space of its own
        piece = raw[i] if special[i] else "␣" if blank else text[start:end].strip() or raw[i]
        pieces.append(("##" if inside else "") + piece)
        if inside:
            spans[-1] = (spans[-1][0], end, spans[-1][2])
        else:
            spans.append((start, end, piece))
        groups.append(len(spans) - 1)
    names = [text[start:end].strip() or first for start, end, first in spans]
    return tuple(pieces), tuple(groups), tuple(names)
