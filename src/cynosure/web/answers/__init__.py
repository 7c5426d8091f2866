"""Library calls as JSON: what the worker processes answer, by the name of the route."""

from __future__ import annotations

import numpy as np


class File(Exception):
    """Raised by an answer that is a file: its media type and its bytes."""

    def __init__(self, media: str, data: bytes) -> None:
        super().__init__(media)
        self.media, self.data = media, data


def plane(z: np.ndarray) -> np.ndarray:
    """All states in the three directions in which they spread most: principal components."""
    flat = z.reshape(-1, z.shape[-1]).astype(np.float64)
    flat = flat - flat.mean(axis=0)
    top = float(np.abs(flat).max()) or 1.0
    axes = np.linalg.svd(flat / top, full_matrices=False)[2][:3]
    return (flat @ axes.T).reshape(*z.shape[:-1], len(axes))
