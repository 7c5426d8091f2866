"""The page and the HTTP API: routes that are library calls, run in processes that can be stopped.

`listening` opens the port, `server` has the routes and `guard` who may ask; `asked` says what a
request may hold and `answers`, `readings`, `insides` and `runs` are the library calls. They run in
`worker` processes, kept by `pool`: a computation that hangs, crashes or is no longer wanted takes
nothing else with it.
"""

from __future__ import annotations
