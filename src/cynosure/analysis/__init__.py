"""What can be said about a run: its limit, its leaders, its clusters, its spectra.

`limits` proves the limit of a hardmax run; `leaders` says who leads from which layer on;
`clustering` groups tokens; `observing` has quantities along a run; `polytope` (with `vertices`) is
their convex hull; `spectra` reads matrices and the limits of flows; `probes` asks where one more
token would end; `control` chooses who leads; `shadowing` proves how long softmax keeps clusters.
"""

from __future__ import annotations

from .._exports import lazily

__getattr__, __dir__, __all__ = lazily(__name__)
