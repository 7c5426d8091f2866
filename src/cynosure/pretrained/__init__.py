"""Real transformers as attention dynamics: their heads, their trajectories, their layers iterated.

The real model is hooked, and its own modules are called with the arguments the model itself gives
them; nothing of it is written again here, but for `reading.plain`, which answers a first sentence
of MiniLM sooner. torch and transformers are imported on first use.
"""

from __future__ import annotations

from .._exports import lazily

__getattr__, __dir__, __all__ = lazily(__name__)
