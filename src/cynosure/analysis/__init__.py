"""What can be said about a run: its limit, its leaders, its clusters, its spectra.

`limits` proves the limit of a hardmax run; `leaders` says who leads from which layer on;
`clustering` groups tokens; `polytope` (with `vertices`) is their convex hull; `spectra` reads
matrices and the limits of flows; `probes` asks where one more token would end, `steering` finds a
matrix A under which given tokens lead, `choosing` one under which they alone do, and `removal` the
smallest change that takes a lead away.
"""
