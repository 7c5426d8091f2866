"""survey_texts(): surveys of many texts in one store on disk, continued after an interruption."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..._files import sweep
from ..._files.stores import appearing, readable, whole
from ..._files.writing import alone
from ..._progress import Progress, showing
from .surveys import HEADS, TOKENS
from .weights import weights_sha256

if TYPE_CHECKING:
    from .transformer import Transformer

BATCH = 16  # texts between two writes: what an interruption can lose
TO_DO, DONE, REFUSED = 0, 1, 2


def survey_texts(
    transformer: Transformer, texts: Sequence[str], store: str | Path, *, progress: Progress = None
) -> Any:
    """Surveys every text into the Zarr folder `store` and returns it as an xarray Dataset.

    Dimensions text, layer, head, and depth for the tokens; statistics over a corpus are one line:
    survey_texts(m, texts, "corpus.zarr")["first_mass"].mean("text"). A store that exists is
    continued if it is of the same weights and texts, and refused otherwise. `state` is 1 for a text
    that is done and 2 for one that cannot be read (an empty one), whose numbers are NaN.
    """
    texts = list(texts)
    if not texts or not all(isinstance(text, str) for text in texts):
        raise ValueError(f"texts: expected a sequence of texts, at least one, got {len(texts)}")
    if transformer.adapter.picture is not None or transformer.tokenizer is None:
        lack = "has no tokenizer" if transformer.adapter.picture is None else "reads pictures"
        raise ValueError(f"texts: {transformer.name} {lack}, and can read none of them")
    group = _group(transformer, texts, Path(store))
    bar = showing(progress, "surveying texts", 1.0)
    with alone(Path(store), patience=0.0), bar as tell:  # a chunk holds texts of several writes
        _fill(group, transformer, texts, Path(store), tell)
    return open_surveys(store)


def _fill(
    group: Any,
    transformer: Transformer,
    texts: list[str],
    store: Path,
    progress: Callable[[float, str], Any] | None,
) -> None:
    """Every text that waits, into the store."""
    with readable(store):
        state = np.asarray(group["state"][:])
    waiting = np.flatnonzero(state == TO_DO)
    for start in range(0, len(waiting), BATCH):
        chosen = waiting[start : start + BATCH]
        if progress is not None:
            progress((len(texts) - len(waiting) + start) / len(texts), f"text {chosen[0]}")
        found = [_one(transformer, texts[i]) for i in chosen.tolist()]
        with readable(store):  # chunks that are partly written are read before
            for name in (*HEADS, *TOKENS, "n", "state"):  # the state last: the rest is then whole
                where = f"tokens_{name}" if name in TOKENS else name
                group[where].oindex[chosen] = np.stack([one[name] for one in found])


def open_surveys(store: str | Path) -> Any:
    """Opens a store written by `survey_texts` as a lazily read Dataset."""
    try:
        import xarray
    except ImportError:
        raise ImportError('stores of surveys need: pip install "cynosure[scale]"') from None
    if not (Path(store) / "zarr.json").exists():
        raise ValueError(f"{store}: no store of surveys; expected a folder of survey_texts()")
    with readable(store):
        return xarray.open_dataset(store, engine="zarr", chunks=None, consolidated=False)


def _one(transformer: Transformer, text: str) -> dict[str, Any]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # a text that was cut has n = max_tokens
            survey = transformer.survey(text)
    except ValueError:
        layers, heads = transformer.depth, transformer.width
        empty: dict[str, Any] = {name: np.full((layers, heads), np.nan) for name in HEADS}
        empty |= {name: np.full(layers + 1, np.nan) for name in TOKENS}
        return {**empty, "n": 0, "state": REFUSED}
    return {**survey.heads, **survey.tokens, "n": survey.n, "state": DONE}


def _group(transformer: Transformer, texts: list[str], store: Path) -> Any:
    """The zarr group, new or found; its attributes say what it is of."""
    try:
        import zarr
    except ImportError:
        raise ImportError('stores of surveys need: pip install "cynosure[scale]"') from None
    digest = hashlib.sha256("\0".join(texts).encode("utf-8", "surrogatepass")).hexdigest()
    weights = weights_sha256(transformer)
    about = {"model": transformer.name, "weights_sha256": weights, "texts_sha256": digest}
    if not (store / "zarr.json").exists():
        if store.exists() and not (store.is_dir() and not any(store.iterdir())):
            raise ValueError(f"{store}: exists and is no store of surveys; choose another folder")
        with appearing(store) as new:
            _create(zarr.create_group(whole(new), attributes=about), transformer, len(texts))
    for folder in [store.parent, *(Path(name) for name, _, _ in os.walk(store))]:
        sweep(folder)  # temporaries of a run that was killed
    with readable(store):
        group = zarr.open_group(whole(store), mode="r+")
        other = [key for key in about if key != "model" and group.attrs.get(key) != about[key]]
        known = "state" in group
    if other or not known:
        what = " and ".join(key.removesuffix("_sha256") for key in other) or "something"
        raise ValueError(f"{store}: holds surveys of other {what}; choose another folder")
    return group


def _create(group: Any, transformer: Transformer, n: int) -> None:
    """The arrays of `n` texts, all of them waiting."""
    layers, heads = transformer.depth, transformer.width

    def add(name: str, shape: tuple[int, ...], dims: tuple[str, ...], kind: str) -> None:
        named = {"dimension_names": dims, "fill_value": np.nan if kind == "f8" else 0}
        chunks = (min(n, 4 * BATCH), *shape[1:])
        group.create_array(name, shape=shape, dtype=kind, chunks=chunks, **named)

    for name in HEADS:
        add(name, (n, layers, heads), ("text", "layer", "head"), "f8")
    for name in TOKENS:
        add(f"tokens_{name}", (n, layers + 1), ("text", "depth"), "f8")
    add("n", (n,), ("text",), "i8")
    add("state", (n,), ("text",), "i1")
