"""Seeded fuzzing: command lines, library calls and files, each a mutation of one that works.

    python -m tests.fuzz --count 2000 --seed 0       # minutes; --count 100000 for the long run
    python -m tests.fuzz --first 700 --count 1300    # after an interruption, from where it was
    python -m tests.fuzz --seed 0 --only 1234        # one case again, with its traceback

Case number i of a seed is always the same. It runs in a forked child with limits of processor
time and of memory, and ends as one of OUTCOMES. "ok" and "refused" are right; the others are bugs
of ours.
"""
