"""Many texts, labelled once each: partition by partition, on one machine or on a cluster.

`predict` cuts files into partitions and writes, for each, one parquet file with a row per text:
file, row (and an id), label, probability, the words that decided, whether there was any evidence.
Rows that cannot be read go to _bad-NNNNN.jsonl with their place and the reason.

The folder is the state. _manifest.json says what is read, with which model and how; a partition is
there whole or not at all (`write_atomically`), and what is there is not made again. So a run that
was killed resumes when it is started again; with another model, input or
option it is refused. The rows are the same bits whichever process makes a partition.

    import cynosure as cy
    cy.bulk.predict("reviews/*.parquet", out="labels", workers=8)
"""

from __future__ import annotations

from ..._exports import guard
from .frames import frame
from .predicting import Labelled, predict

__all__ = ["Labelled", "frame", "predict"]


guard(__name__)
