"""Studies with Cynosure: findings, each beside its control.

One file each, with TITLE, Params, QUICK and run(p, progress) -> Report, written as a user would
write it: with `import cynosure as cy` and nothing private. A folder is a chapter of the gallery;
`cynosure run NAME` finds a study by its name.
"""
