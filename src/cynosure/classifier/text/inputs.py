"""Texts and labels from lists and from columns of pandas, polars, pyarrow and numpy.

The trap is a table: iterating over a DataFrame gives the *names* of its columns, over a dict its
keys, over a set no order, so each of these is either one column or refused.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np


def as_texts(texts: Any, name: str = "texts") -> list[str]:
    """A list of strings from a list, array, or one column of a table; bytes are read as UTF-8."""
    out = _column(texts, name, "texts")
    for i, text in enumerate(out):
        if isinstance(text, str):
            continue
        if not isinstance(text, bytes):
            got = "a missing value" if _is_missing(text) else repr(text)[:200]
            how = "drop the row or replace it by ''"
            raise ValueError(f"{name}[{i}]: expected a string, got {got}; {how}")
        try:
            out[i] = text.decode("utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{name}[{i}]: bytes that are not UTF-8 ({error.reason} at byte {error.start}); "
                "decode them first, for example text.decode('latin-1')"
            ) from None
    return out


def as_labels(y: Any, name: str = "y") -> np.ndarray:
    """Labels (texts,) as an array of strings, whole numbers or booleans; none missing or empty.

    A column of measurements is no column of labels: numbers that are not whole are refused, since
    each of them would become a class of its own.
    """
    from sklearn.utils.multiclass import check_classification_targets

    if y is None:
        raise ValueError(
            f"{name}: labels are needed; this requires y to be passed, but the target y is None"
        )
    rows = [_plain_label(x) for x in _column(y, name, "labels")]
    for i, x in enumerate(rows):
        if _is_missing(x):
            raise ValueError(f"{name}[{i}]: a missing label; drop the row")
        if isinstance(x, float) and abs(x) == float("inf"):
            raise ValueError(f"{name}[{i}]: an infinite label; drop the row or name its class")
        if isinstance(x, str) and not x.strip():
            raise ValueError(f"{name}[{i}]: an empty label; drop the row or name its class")
        if isinstance(x, list | tuple | np.ndarray):
            raise ValueError(f"{name}[{i}]: expected one label per text, got {x!r}")
        if not isinstance(x, str | bool | int | float):
            raise TypeError(
                f"{name}[{i}]: a label is a string, a whole number or a boolean, got "
                f"{type(x).__name__} {str(x)[:80]!r}; make it a string with str"
            )
    kinds = {type(x) for x in rows}
    if len(kinds & {str, bool}) and len(kinds) > 1:
        one = "strings" if str in kinds else "booleans"
        raise TypeError(f"{name}: labels are partly {one}, partly not; make them one kind")
    labels = np.array(rows)
    if labels.dtype == object:
        raise ValueError(f"{name}: a label beyond 64 bits; make labels strings with str")
    if len(labels):
        check_classification_targets(labels)
    return labels


def _column(x: Any, name: str, what: str) -> list[Any]:
    """The rows of one column, as Python objects where the library has them."""
    if isinstance(x, str | bytes):
        one = "text; write [text]" if what == "texts" else "string"
        raise TypeError(f"{name}: expected a list of {what}, got one {one}")
    if isinstance(x, Mapping):
        keys = ", ".join(map(repr, list(x)[:5]))
        raise TypeError(
            f"{name}: expected a list of {what}, got a {type(x).__name__} with the keys {keys}; "
            "give one of its values"
        )
    if isinstance(x, AbstractSet):
        raise TypeError(f"{name}: a {type(x).__name__} has no order; give a list of {what}")
    x = _only_column(x, name, what)
    for method in ("to_pylist", "to_list", "tolist"):  # pyarrow; pandas and polars; numpy
        if hasattr(x, method):
            return _rows(getattr(x, method)(), x, name, what)
    if hasattr(x, "__array__"):
        return _column(np.asarray(x), name, what)
    try:
        return _rows(list(x), x, name, what)
    except TypeError:
        raise TypeError(f"{name}: expected a list of {what}, got {type(x).__name__}") from None


def _rows(rows: Any, x: Any, name: str, what: str) -> list[Any]:
    """The rows, those of one cell opened; an array of (n, 1) labels is likely an accident."""
    if not isinstance(rows, list):  # an array of no dimension gives its one entry
        raise TypeError(f"{name}: expected a list of {what}, got one value {str(rows)[:80]!r}")
    if rows and all(isinstance(row, list | tuple) and len(row) == 1 for row in rows):
        if what == "labels" and isinstance(x, np.ndarray):
            from sklearn.exceptions import DataConversionWarning

            warnings.warn(
                f"A column-vector {name} was passed when a 1d array was expected. Please change "
                "the shape of y to (n_samples,), for example using ravel().",
                DataConversionWarning,
                stacklevel=5,
            )
        return [row[0] for row in rows]
    return rows


def _only_column(x: Any, name: str, what: str) -> Any:
    """The one column of a table, or x itself where x is none."""
    if type(x).__name__ == "LazyFrame":
        raise TypeError(f"{name}: a LazyFrame holds no rows yet; write frame.collect()")
    shape = getattr(x, "shape", None)
    if what == "texts" and hasattr(x, "tocsr") and hasattr(x, "nnz"):
        raise TypeError(
            f"{name}: expected texts, got a sparse matrix of shape {shape}, as TfidfVectorizer and "
            "CountVectorizer make them; this classifier takes texts and makes its own terms: leave "
            "the vectorizer out of the pipeline, or keep it with a linear model and explain that "
            "by cynosure.read_linear(pipeline)"
        )
    names = getattr(x, "column_names", None)  # pyarrow, whose `columns` are the data
    if names is None:
        names = getattr(x, "columns", None)
    if names is None and isinstance(x, np.ndarray):
        names = x.dtype.names
    if names is None:
        if isinstance(shape, tuple) and len(shape) > 1 and tuple(shape[1:]) != (1,):
            raise ValueError(
                f"{name}: expected one column of {what} (one of the {what} per row), got an array "
                f"of shape {tuple(shape)}; give one column, for example {name}[:, 0]"
            )
        return x
    columns = list(names)
    if len(columns) == 1:
        return x[columns[0]]
    listed = ", ".join(map(repr, columns[:8])) + (", ..." if len(columns) > 8 else "")
    example = f"; choose one: table[{columns[0]!r}]" if columns else ""
    raise ValueError(
        f"{name}: expected one column of {what}, got a table of {len(columns)}"
        f"{' columns: ' if columns else ' columns'}{listed}{example}"
    )


def _is_missing(x: Any) -> bool:
    """None, NaN, and what other libraries have for them: not equal to itself, or unwilling."""
    if x is None:
        return True
    if isinstance(x, list | tuple | np.ndarray):
        return False
    try:
        return bool(x != x)
    except (TypeError, ValueError):  # pandas.NA has no truth
        return True


def _plain_label(x: Any) -> Any:
    """numpy's scalars as Python's; dates stay what they are, and are refused by name."""
    return x.item() if isinstance(x, np.generic) and x.dtype.kind not in "Mm" else x
