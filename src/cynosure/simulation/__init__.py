"""Tokens in, trajectory out.

`configurations` are named starts; `loop` has simulate(), the only loop of the package; `steppers`
integrate flows; `trajectory` is the record of a run, `status` how it ended.
"""
