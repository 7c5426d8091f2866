"""The page and the HTTP API: routes that are library calls, run in processes that can be stopped.

`requests` says what a request may hold and who may send it, `answers` are the library calls, made
in the processes of `workers`. `server` has the routes, `connections` opens the port.
"""

from __future__ import annotations
