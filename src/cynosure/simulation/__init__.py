"""Tokens in, trajectory out.

`configurations` are initial tokens with a name; `loop` has simulate(), which runs every dynamics;
`steppers` integrate flows in time; `trajectory` is the record of a run, `status` says how it went.
"""

from __future__ import annotations

from .._exports import lazily

__getattr__, __dir__, __all__ = lazily(__name__)
