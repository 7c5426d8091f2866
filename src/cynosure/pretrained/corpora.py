"""survey_texts(): surveys of many texts in one store on disk, which goes on where it stopped."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .._files import sweep
from .._files.stores import appearing, readable, whole
from .surveys import HEADS, TOKENS

if TYPE_CHECKING:
    from .transformer import Transformer

__all__ = ["open_surveys", "survey_texts"]

BATCH = 16  # texts between two writes: what an interruption can lose
TO_DO, DONE, REFUSED = 0, 1, 2


def survey_texts(
    transformer: Transformer,
    texts: Sequence[str],
    store: str | Path,
    *,
    progress: Callable[[float, str], Any] | None = None,
) -> Any:
    """Every text surveyed into the zarr folder `store`; returns it as an xarray Dataset.

    Dimensions text, layer, head, and depth for the tokens; statistics over a corpus are one line:
    survey_texts(m, texts, "corpus.zarr")["first_mass"].mean("text"). A store that exists is gone on
    with, if it is of the same weights and texts, and refused otherwise. `state` is 1 for a text
    that is done and 2 for one that cannot be read (an empty one), whose numbers are NaN.
    """
    texts = list(texts)
    if not texts or not all(isinstance(text, str) for text in texts):
        raise ValueError(f"texts: expected a sequence of texts, at least one, got {len(texts)}")
    if transformer.adapter.picture is not None or transformer.tokenizer is None:
        lack = "has no tokenizer" if transformer.adapter.picture is None else "reads pictures"
        raise ValueError(f"texts: {transformer.name} {lack}, and can read none of them")
    group = _group(transformer, texts, Path(store))
    with readable(store):
        state = np.asarray(group["state"][:])
    waiting = np.flatnonzero(state == TO_DO)
    for start in range(0, len(waiting), BATCH):
        chosen = waiting[start : start + BATCH]
        if progress is not None:
            progress((len(texts) - len(waiting) + start) / len(texts), f"text {chosen[0]}")
        found: dict[str, list[Any]] = {name: [] for name in (*HEADS, *TOKENS, "n", "state")}
        for i in chosen.tolist():
            for name, value in _one(transformer, texts[i]).items():
                found[name].append(value)
        with readable(store):  # chunks that are partly written are read before
            for name in (*HEADS, *TOKENS, "n", "state"):  # the state last: it vouches for the rest
                where = name if name in (*HEADS, "n", "state") else f"tokens_{name}"
                group[where].oindex[chosen] = np.stack(found[name])
    return open_surveys(store)


def open_surveys(store: str | Path) -> Any:
    """The Dataset of a store written by `survey_texts`, read as it is asked for."""
    try:
        import xarray
    except ImportError:
        raise ImportError('stores of surveys need: pip install "cynosure[frames]"') from None
    if not (Path(store) / "zarr.json").exists():
        raise ValueError(f"{store}: no store of surveys; expected a folder of survey_texts()")
    with readable(store):
        return xarray.open_dataset(store, engine="zarr", chunks=None, consolidated=False)


def _one(transformer: Transformer, text: str) -> dict[str, Any]:
    shape = (transformer.depth, transformer.width)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # a text that was cut has n = max_tokens
            survey = transformer.survey(text)
    except ValueError:
        empty: dict[str, Any] = {name: np.full(shape, np.nan) for name in HEADS}
        empty |= {name: np.full(shape[0] + 1, np.nan) for name in TOKENS}
        return empty | {"n": 0, "state": REFUSED}
    return {**survey.heads, **survey.tokens, "n": survey.n, "state": DONE}


def _group(transformer: Transformer, texts: list[str], store: Path) -> Any:
    """The zarr group, new or found; its attributes say what it is of."""
    from .inspection import weights_sha256

    try:
        import zarr
    except ImportError:
        raise ImportError('stores of surveys need: pip install "cynosure[frames]"') from None
    digest = hashlib.sha256("\0".join(texts).encode("utf-8", "surrogatepass")).hexdigest()
    weights = weights_sha256(transformer)
    about = {"model": transformer.name, "weights_sha256": weights, "texts_sha256": digest}
    if store.exists() and not (store / "zarr.json").exists() and not _is_empty(store):
        raise ValueError(f"{store}: exists and is no store of surveys; choose another folder")
    if not (store / "zarr.json").exists():
        with appearing(store) as new:
            _create(zarr.create_group(whole(new), attributes=about), transformer, len(texts))
    for folder, _, _ in os.walk(store):
        sweep(Path(folder))  # temporaries of a run that was killed
    with readable(store):
        group = zarr.open_group(whole(store), mode="r+")
        other = [key for key in about if key != "model" and group.attrs.get(key) != about[key]]
        known = "state" in group
    if other or not known:
        what = " and ".join(key.removesuffix("_sha256") for key in other) or "something"
        raise ValueError(f"{store}: holds surveys of other {what}; choose another folder")
    return group


def _is_empty(store: Path) -> bool:
    return store.is_dir() and not any(store.iterdir())


def _create(group: Any, transformer: Transformer, n: int) -> None:
    """The arrays of `n` texts, all of them waiting."""
    layers, heads = transformer.depth, transformer.width

    def add(name: str, shape: tuple[int, ...], dims: tuple[str, ...], kind: str) -> None:
        chunks = (min(n, 4 * BATCH), *shape[1:])
        fill = np.nan if kind == "f8" else 0
        group.create_array(
            name, shape=shape, dtype=kind, chunks=chunks, dimension_names=dims, fill_value=fill
        )

    for name in HEADS:
        add(name, (n, layers, heads), ("text", "layer", "head"), "f8")
    for name in TOKENS:
        add(f"tokens_{name}", (n, layers + 1), ("text", "depth"), "f8")
    add("n", (n,), ("text",), "i8")
    add("state", (n,), ("text",), "i1")
