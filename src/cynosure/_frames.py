"""Results as tables of pandas and arrays of xarray, for whoever has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np


def dataframe(columns: Mapping[str, Any] | list[dict[str, Any]]) -> Any:
    """A pandas DataFrame of columns, or of rows."""
    try:
        import pandas
    except ImportError:
        raise ImportError('tables of pandas need: pip install "cynosure[scale]"') from None
    return pandas.DataFrame(columns)


def dataset(values: Mapping[str, Any], named: Mapping[str, Any], about: Mapping[str, Any]) -> Any:
    """An xarray Dataset: arrays with their dimensions, names along one, and what it is about."""
    try:
        import xarray
    except ImportError:
        raise ImportError('xarray datasets need: pip install "cynosure[scale]"') from None
    sizes = {dim: n for dims, x in values.values() for dim, n in zip(dims, np.shape(x))}
    places = {dim: np.arange(n) for dim, n in sizes.items()}
    return xarray.Dataset(dict(values), coords={**places, **named}, attrs=dict(about))
