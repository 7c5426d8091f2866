"""Choosing who leads: matrices A under which given tokens lead, or a proof that none exists.

`steering` makes tokens lead, `choosing` makes them lead alone, `plane_forms` lists all that can be
chosen in the plane, `removal` takes a lead away, and `contradictions` proves the impossible.
"""
