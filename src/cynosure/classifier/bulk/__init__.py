"""Many texts, labelled once each: partition by partition, on one machine or on a cluster.

`predict` cuts files into partitions and writes, for each, one parquet file with a row per text:
file, row (and an id), label, probability, the words that decided, whether there was any evidence.
Rows that cannot be read go to _bad-NNNNN.jsonl with their place and the reason.

The folder is the state. _manifest.json says what is read, with which model and how; a partition is
there whole or not at all (`write_atomically`), and what is there is not made again. So a run that
was killed, whoever killed whatever, goes on when it is started again; with another model, input or
option it is refused. Which process makes a partition does not matter: the rows are the same bits.

    import cynosure as cy
    cy.bulk.predict("reviews/*.parquet", out="labels", workers=8)

`files` finds and opens the input, `cutting` divides it, `reading` gives its rows, `manifest` is
what the folder knows, `partition` makes one of them, `predicting` all; `frames` is for tables in
memory.
"""

from __future__ import annotations

from .frames import frame
from .predicting import Labelled, predict

__all__ = ["Labelled", "frame", "predict"]
