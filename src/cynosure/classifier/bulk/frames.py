"""Tables in memory, labelled: pandas.DataFrame and dask.dataframe."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from ..bundled import find
from ..explaining.loaded_model import LoadedModel
from ..text.datasets import _offered
from ..text.inputs import _is_missing
from .manifest import fingerprint
from .partition import answers, opened_model


def frame(data: Any, model: Any = None, *, text: str = "text") -> Any:
    """label, probability, enough, evidence of the texts of a table, row by row, index kept.

    `data` is a pandas.DataFrame, or a dask.dataframe, of which nothing is read before the result
    is asked for (`map_partitions`). A text that is missing, or of which no word is evidence, has a
    missing label and no probability.
    """
    if model is None or isinstance(model, str | os.PathLike):
        model = str(os.path.realpath(find(model)))
    elif not isinstance(model, LoadedModel):
        model = model._opened
    if hasattr(data, "map_partitions"):
        return data.map_partitions(_frame, model, text, meta=_frame(data._meta, model, text))
    return _frame(data, model, text)


def _frame(data: Any, model: Any, text: str) -> Any:
    import pandas as pd

    if text not in data.columns:
        raise ValueError(f"no column {text!r}; {_offered(data.columns, True)}")
    opened = opened_model(model, fingerprint(Path(model))) if isinstance(model, str) else model
    texts = [None if _is_missing(x) else x for x in data[text].tolist()]
    there = np.array([isinstance(x, str) for x in texts], bool)
    label, p, deciding, evidence = answers(opened, [x for x in texts if isinstance(x, str)])
    words: list[list[str]] = [[] for _ in texts]
    for i, found_ in zip(np.flatnonzero(there).tolist(), deciding.tuples(), strict=True):
        words[i] = list(found_)
    kinds = {"U": "string", "i": "Int64", "f": "Float64", "b": "boolean"}
    labels = pd.Series(pd.NA, data.index, dtype=kinds[label.dtype.kind])
    probability, known = np.full(len(texts), np.nan), np.zeros(len(texts), bool)
    known[there] = evidence
    labels[known], probability[known] = label[evidence], p[evidence]
    columns = {
        "label": labels, "probability": probability,
        "enough": pd.Series(words, data.index, dtype=object),
        "evidence": known,
    }  # fmt: skip
    return pd.DataFrame(columns, index=data.index)
