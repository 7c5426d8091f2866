"""Pictures and pages; nothing above this stage draws.

`markers` says what a token looks like, `plot` and `movie` draw runs, `report` is the page that
holds text, tables, checks and pictures.
"""
