"""One partition: its rows read, labelled and written, whole or not at all."""

from __future__ import annotations

import json
import shutil
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any, final

import numpy as np

from ..._files import write_atomically
from ..explaining.evidence import EvidenceWords, read_with_words
from ..explaining.loaded_model import LoadedModel
from .manifest import Task, fingerprint
from .reading import Batch, batches

_ROW_GROUP = 1 << 16  # rows of the output


@lru_cache(maxsize=2)
def opened_model(model: str, stated: str) -> LoadedModel:
    """The model in that folder, if its fingerprint is the one stated."""
    if fingerprint(Path(model)) != stated:
        raise ValueError(f"{model}: the model was replaced while it was in use")
    return LoadedModel.load(model)


def is_made(task: Task) -> bool:
    return task.target.is_file() and facts_of(task) is not None


def facts_of(task: Task) -> dict[str, Any]:
    """What a finished partition says about itself."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        facts = json.loads((pq.read_metadata(task.target).metadata or {})[b"cynosure"])
    except (pa.ArrowException, KeyError, ValueError):
        facts = {}
    if facts.get("job") != task.job:
        raise ValueError(f"{task.target}: no partition of this run; move it away")
    return facts


def make(task: Task) -> str:
    """Write one partition; "" or, where its rows cannot be read or written, the reason."""
    try:
        _make(task)
    except (ValueError, OSError) as error:
        said = str(error).removeprefix(f"{task.path}: ")
        return f"{task.name[:100]}: {' '.join(said.split())[:300]}"
    return ""


def _make(task: Task) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    opened = opened_model(task.model, task.model_sha256)
    schema = _schema(opened.classes_, task)
    names = pa.array(list(opened.vocabulary.in_words.number), pa.string())

    def write(stream: Any) -> None:
        counts: dict[str, Any] = {"rows": 0, "unknown": 0, "bad": 0, "first_bad": ""}
        held: list[Any] = []
        with (
            tempfile.SpooledTemporaryFile(max_size=1 << 20) as bad,
            pq.ParquetWriter(pa.PythonFile(_Lent(stream), mode="w"), schema) as writer,
        ):
            for batch in batches(Path(task.path), task.part, task.text, task.id):
                for row, reason in batch.bad:
                    counts["first_bad"] = counts["first_bad"] or f"{task.name}, row {row}: {reason}"
                    line = json.dumps({"file": task.name, "row": row, "reason": reason})
                    bad.write(line.encode() + b"\n")
                counts["bad"] += len(batch.bad)
                counts["rows"] += len(batch.rows)
                if batch.rows:
                    table = _table(opened, names, task, batch, schema)
                    counts["unknown"] += len(table) - table["evidence"].to_numpy().sum().item()
                    held.append(table)
                if sum(map(len, held)) >= _ROW_GROUP:
                    writer.write_table(pa.concat_tables(held))
                    held.clear()
            if held:
                writer.write_table(pa.concat_tables(held))
            facts = json.dumps({"job": task.job, **counts})
            writer.add_key_value_metadata({"cynosure": facts})
            if counts["bad"]:  # there before the partition is: then both are
                bad.seek(0)
                write_atomically(task.bad, lambda side: shutil.copyfileobj(bad, side))

    write_atomically(task.target, write)


@final
class _Lent:
    """A stream that another may write to and not close."""

    def __init__(self, stream: Any) -> None:
        self._stream, self.closed = stream, False

    def write(self, data: Any) -> int:
        self._stream.write(bytes(data))
        return len(data)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True


def _schema(classes: np.ndarray, task: Task) -> Any:
    import pyarrow as pa

    ids = [] if task.id is None else [(task.id, pa.type_for_alias(task.id_type))]
    label = pa.string() if classes.dtype.kind == "U" else pa.from_numpy_dtype(classes.dtype)
    return pa.schema(
        [("file", pa.string()), ("row", pa.int64()), *ids, ("label", label),
         ("probability", pa.float64()), ("enough", pa.list_(pa.string())), ("evidence", pa.bool_())]
    )  # fmt: skip


def _table(opened: LoadedModel, names: Any, task: Task, batch: Batch, schema: Any) -> Any:
    import pyarrow as pa

    label, probability, deciding, evidence = answers(opened, batch.texts)
    enough = pa.ListArray.from_arrays(deciding.indptr.astype(np.int32), names.take(deciding.words))
    unsaid = label.dtype.type(task.abstain) if task.abstain is not None else None
    labels = [x if said else unsaid for x, said in zip(label.tolist(), evidence.tolist())]
    ids = batch.ids if task.id_type == "int64" else list(map(str, batch.ids))
    columns = [
        pa.repeat(task.name, len(batch.rows)), batch.rows, *([] if task.id is None else [ids]),
        pa.array(labels, schema.field("label").type), pa.array(probability, mask=~evidence), enough,
        evidence,
    ]  # fmt: skip
    kinds = [field.type for field in schema]
    return pa.Table.from_arrays(
        [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)], schema=schema
    )


def answers(
    opened: LoadedModel, texts: list[str]
) -> tuple[np.ndarray, np.ndarray, EvidenceWords, np.ndarray]:
    """Label, its probability, the words that decided, whether there were any: of each text."""
    verdicts, deciding = read_with_words(opened, texts)
    won, p = opened.winners(verdicts), opened.probabilities(verdicts.decision)
    return opened.classes_[won], p[np.arange(len(won)), won], deciding, verdicts.evidence
