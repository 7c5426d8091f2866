"""Reading matrices and runs: spectra of A, V, P; good triples; rates; limiting objects.

Each function returns a small frozen record with `to_dict()`, ready for a table or JSON.
"""

from __future__ import annotations

from ..._exports import lazily

__getattr__, __dir__, __all__ = lazily(__name__)
