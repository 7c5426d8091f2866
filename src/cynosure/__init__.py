"""Cynosure: self-attention as a dynamical system, with its leaders, clusters and proofs.

These are the names of the first hour. The rest is reached through its module, for example
`cy.dynamics.NGPTFlow`, `cy.attention.Sinkhorn` or `cy.simulation.RK4`. Each name is imported when
it is first used, so `import cynosure` itself loads nothing.
"""

from __future__ import annotations

from ._exports import lazily

__version__ = "0.1.0"
__getattr__, __dir__, __all__ = lazily(__name__)
__all__.append("__version__")
