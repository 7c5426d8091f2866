"""Networks of hardmax attention that are built, not trained, and run in exact arithmetic.

`network` has their layers and what is asked of them, `classifying` builds one that is right on all
sequences it is given.
"""

from __future__ import annotations

from .._exports import lazily

__getattr__, __dir__, __all__ = lazily(__name__)
