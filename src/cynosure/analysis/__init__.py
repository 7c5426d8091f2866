"""What reads a run, or says what it tends to.

`limits` proves the limit of a hardmax run; `leaders`, `clustering` and `polytope` (with `vertices`)
read one; `spectra` reads matrices and flows; `steering` asks which A makes given tokens lead.
"""
