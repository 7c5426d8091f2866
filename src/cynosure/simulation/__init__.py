"""Tokens in, trajectory out.

`configurations` are initial tokens with a name; `loop` has simulate(), which runs every dynamics;
`steppers` integrate flows in time; `trajectory` is the record of a run, `status` says how it went.
"""
