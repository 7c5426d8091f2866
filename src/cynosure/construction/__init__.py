"""Networks of hardmax attention that are built, not trained, and run in exact arithmetic.

`network` has their layers and what is asked of them, `classifying` builds one that is right on all
sequences it is given.
"""
