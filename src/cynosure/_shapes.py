"""The words for shapes in annotations, `Float[np.ndarray, "n d"]`: those of jaxtyping.

Only tests and type checkers read them; others are spared an import longer than a small answer.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING or "jaxtyping" in sys.modules:
    from jaxtyping import Bool, Complex, Float, Int
else:

    class Float:
        """An array, whatever its shape."""

        def __class_getitem__(cls, given: tuple[type, str]) -> type:
            return given[0]

    Bool = Complex = Int = Float

__all__ = ["Bool", "Complex", "Float", "Int"]
