"""What a GPU does: `tokens` of one large walk, searched by `passes`, and batches of small ones.

Nothing here is imported before a tensor on a GPU comes in.
"""

from __future__ import annotations

import numpy as np

from ..._types import Array, as_floats, is_torch

FEWEST = 4096  # tokens; with fewer the CPU is done before a device has started


def there(z: Array, mask: np.ndarray | None = None) -> Array | None:
    """The tokens z (n, d) if they are on a GPU and so many that searching there pays."""
    if not is_torch(z) or z.device.type != "cuda" or z.ndim != 2 or len(z) < FEWEST:
        return None
    z = as_floats(z)  # as the CPU would take them
    return z if mask is None else z[mask.nonzero()[0].tolist()]
