"""Labelling many texts: texts per second, memory, and what kills cost.

    python benchmarks/bulk.py --data aclImdb.tar.gz [--quick] [PART ...]   (or CYNOSURE_IMDB=...)

All parts but `large`, or those that are named; the others stay in the JSON as they were.

speed: parquet in, parquet out: ours in one process, in two, and on two Dask workers; beside it
   scikit-learn's TF-IDF + logistic regression (the same n-grams, as many terms) under Dask, on one
   and on two workers of the same cluster. Ours writes the words that decided as well. 10^5 texts,
   the reviews four times: of fewer, opening the model in each process is most of the time.
long: 10^6 texts in one process and in two, where opening the model no longer counts.
opening: CPU seconds of what a worker does before its first text.
memory: the largest memory of a process that labels 10^5 and 10^6 texts (large: 10^7), the reviews
   again and again, by links to one file; and those of one .csv with 10^5 and 5 10^5 rows.
kills: a run killed over and over with SIGKILL and started again: rows lost, doubled, different.

Without the reviews, made-up ones are labelled by the shipped model.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from interleave import interleave, write  # sets the number of threads: first

import numpy as np  # isort: skip
import pyarrow as pa  # isort: skip
import pyarrow.parquet as pq  # isort: skip

from cynosure import bulk, datasets  # isort: skip
from cynosure.classifier.bundled import folder_of  # isort: skip

SRC = Path(__file__).resolve().parent.parent / "src"


def stored(folder: Path, texts: list[str], files: int) -> Path:
    """The texts in so many parquet files, each a row group."""
    folder.mkdir()
    for i, part in enumerate(np.array_split(np.arange(len(texts)), files)):
        pq.write_table(pa.table({"text": [texts[j] for j in part]}), folder / f"{i:03d}.parquet")
    return folder


class Fresh:
    """A new folder for each run."""

    def __init__(self, base: Path) -> None:
        self.base, self.count = base, 0

    def __call__(self) -> Path:
        self.count += 1
        return self.base / f"out{self.count}"


# --- speed ---------------------------------------------------------------------------------------


def pipeline(texts: list[str], labels: Any) -> Any:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    terms = TfidfVectorizer(ngram_range=(1, 2), min_df=2, max_features=80_000)
    return make_pipeline(terms, LogisticRegression()).fit(texts, labels)


def by_pipeline(frame: Any, fitted: Any) -> Any:
    p = fitted.predict_proba(frame["text"].tolist())
    return frame[[]].assign(label=fitted.classes_[p.argmax(axis=1)], probability=p.max(axis=1))


def speed(base: Path, texts: list[str], fitted: Any, rounds: int) -> dict[str, Any]:
    import dask.dataframe as dd
    from distributed import Client, LocalCluster

    there, fresh = stored(base / "in", texts, 8), Fresh(base)
    # A cluster changes the allocator (MALLOC_TRIM_THRESHOLD_) of every process that is started
    # after it; those of `workers` are ours alone, so they are started before.
    bulk.predict(there, out=fresh(), workers=2)
    quiet: dict[str, Any] = {"processes": True, "threads_per_worker": 1, "dashboard_address": None}
    with (
        LocalCluster(n_workers=1, **quiet) as one, Client(one, set_as_default=False) as alone,
        LocalCluster(n_workers=2, **quiet) as two, Client(two, set_as_default=False) as both,
    ):  # fmt: skip
        held = {client: client.scatter(fitted, broadcast=True) for client in (alone, both)}

        def rival(client: Any) -> None:
            with client.as_current():
                frame = dd.read_parquet(there, columns=["text"])
                meta = {"label": "str", "probability": float}
                done = frame.map_partitions(by_pipeline, held[client], meta=meta)
                done.to_parquet(fresh(), compute_kwargs={"scheduler": client})

        rivals = {
            "scikit-learn under Dask, 1 worker": lambda: rival(alone),
            "ours, 1 process": lambda: bulk.predict(there, out=fresh()),
            "scikit-learn under Dask, 2 workers": lambda: rival(both),
            "ours, 2 processes": lambda: bulk.predict(there, out=fresh(), workers=2),
            "ours, 2 Dask workers": lambda: bulk.predict(there, out=fresh(), client=both),
        }
        seconds = interleave(rivals, rounds, budget=90.0)
    rate = {name: len(texts) / s for name, s in seconds.items()}
    row: dict[str, Any] = {"question": "texts per second", "texts": len(texts)}
    row |= {name: round(value) for name, value in rate.items()}
    single, double = (rate[f"scikit-learn under Dask, {n}"] for n in ("1 worker", "2 workers"))
    row["ours / scikit-learn, 1 and 1"] = round(rate["ours, 1 process"] / single, 2)
    row["ours / scikit-learn, 2 and 2, processes"] = round(rate["ours, 2 processes"] / double, 2)
    row["ours / scikit-learn, 2 and 2, Dask"] = round(rate["ours, 2 Dask workers"] / double, 2)
    row["ours, 2 processes / 1"] = round(rate["ours, 2 processes"] / rate["ours, 1 process"], 2)
    return row


def linked(base: Path, texts: list[str], count: int) -> Path:
    """`count` texts or some more, by links to one file of them."""
    folder = base / f"links{count}"
    if folder.exists():
        return folder
    one = stored(base / f"one{count}", texts, 1) / "000.parquet"
    folder.mkdir()
    for i in range(-(-count // len(texts))):
        os.link(one, folder / f"{i:05d}.parquet")
    return folder


def long(base: Path, texts: list[str], count: int) -> dict[str, Any]:
    """One after the other, once each: minutes, in which the start of a process does not show."""
    there, row, rates = linked(base, texts, count), {"question": "long run"}, {}
    for workers in (1, 2):
        begin = time.perf_counter()
        done = bulk.predict(there, out=base / f"long{workers}", workers=workers)
        rates[workers] = done.rows / (time.perf_counter() - begin)
        row |= {"texts": done.rows, f"texts per second, {workers}": round(rates[workers])}
    return row | {"2 processes / 1": round(rates[2] / rates[1], 2)}


OPENING = """
import json, time
import numpy
at = [time.process_time()]
import pyarrow.parquet
at.append(time.process_time())
from cynosure.classifier.bulk.manifest import fingerprint
from cynosure.classifier.bulk.partition import answers, opened_model
from cynosure.classifier.shipped import folder_of
at.append(time.process_time())
place = folder_of("imdb")
model = opened_model(str(place), fingerprint(place))
at.append(time.process_time())
answers(model, ["A superb film, not a dull one."])
at.append(time.process_time())
print(json.dumps([b - a for a, b in zip(at, at[1:])]))
"""


def opening() -> dict[str, Any]:
    env = {**os.environ, "PYTHONPATH": str(SRC)}
    line = [sys.executable, "-c", OPENING]
    ran = [subprocess.run(line, env=env, capture_output=True, check=True) for _ in range(5)]
    seconds = np.median([json.loads(one.stdout) for one in ran], axis=0)
    parts = ("pyarrow", "our modules", "the model's files", "first text")
    return {"question": "opening", "texts": 1} | {
        f"CPU seconds, {name}": round(value, 3) for name, value in zip(parts, seconds.tolist())
    }


# --- memory --------------------------------------------------------------------------------------

CHILD = """
import json, resource, sys, time
from cynosure import bulk
begin = time.process_time()
done = bulk.predict(sys.argv[1], out=sys.argv[2])
seconds = time.process_time() - begin
most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps([done.rows, most, seconds]))
"""


def one_table(base: Path, texts: list[str], count: int) -> Path:
    """A single .csv of so many rows."""
    path = base / f"one{count}.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["n", "text"])
        rows.writerows([i, texts[i % len(texts)]] for i in range(count))
    return path


def memory(base: Path, source: Path, what: str) -> dict[str, Any]:
    """Labels texts in a process of its own, which then says how large it became."""
    out = base / f"labels-{source.name}"
    line = [sys.executable, "-c", CHILD, str(source), str(out)]
    env = {**os.environ, "PYTHONPATH": str(SRC)}
    ran = subprocess.run(line, env=env, capture_output=True, text=True, check=True)
    rows, most, seconds = json.loads(ran.stdout)
    size = sum(path.stat().st_size for path in out.iterdir())
    return {
        "question": what, "texts": rows, "largest, MB": round(most / 1024),
        "CPU seconds": round(seconds, 1), "texts per CPU second": round(rows / seconds),
        "bytes of output per text": round(size / rows, 1),
    }  # fmt: skip


# --- kills ---------------------------------------------------------------------------------------


def kills(base: Path, texts: list[str], count: int) -> dict[str, Any]:
    """SIGKILL for the driver after a random while, then again, and again to the end."""
    there, out = stored(base / "kin", texts, 24), base / "killed"
    begin = time.perf_counter()
    bulk.predict(there, out=base / "plain")
    whole = time.perf_counter() - begin
    line = [sys.executable, "-m", "cynosure", "predict", str(there), "--out", str(out), "-q"]
    env = {**os.environ, "PYTHONPATH": str(SRC)}
    draw, hit, parts = random.Random(0), 0, []
    for _ in range(count):
        process = subprocess.Popen(line, env=env, stdout=subprocess.DEVNULL)
        end = time.monotonic() + 60
        before = len(list(out.glob("part-*")))
        while process.poll() is None and time.monotonic() < end:
            if len(list(out.glob("part-*"))) > before:  # it works: now
                break
            time.sleep(0.005)
        time.sleep(draw.random() * whole / 24)
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
            hit += 1
        process.wait()
        parts.append(len(list(out.glob("part-*"))))
        if parts[-1] == 24:  # done already: once more from the beginning
            out.rename(base / f"killed{len(parts)}")
    bulk.predict(there, out=out)
    rows = [r for p in sorted(out.glob("part-*")) for r in pq.read_table(p).to_pylist()]
    keys = [(r["file"], r["row"]) for r in rows]
    plain = [
        r for p in sorted((base / "plain").glob("part-*")) for r in pq.read_table(p).to_pylist()
    ]
    return {
        "question": "kills", "texts": len(texts), "killed in time": hit,
        "partitions there after each kill": parts, "rows lost": len(texts) - len(set(keys)),
        "rows doubled": len(keys) - len(set(keys)), "rows different": sum(
            a != b for a, b in zip(plain, rows)),
    }  # fmt: skip


PARTS = ("speed", "long", "opening", "memory", "kills", "large")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default=os.environ.get("CYNOSURE_IMDB"), help="aclImdb.tar.gz")
    parser.add_argument("--quick", action="store_true", help="a tenth of it; nothing is written")
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], metavar="PART")
    given = parser.parse_args()
    chosen = given.parts or PARTS[:-1]
    folder_of("imdb")
    if given.data:
        train, test = (datasets.imdb(given.data, part) for part in ("train", "test"))
    else:
        train, test = (datasets.synthetic(25_000, seed=seed, noise=0.3) for seed in (0, 1))
    less = 10 if given.quick else 1
    texts = list(test.texts[::less])
    path = Path(__file__).with_suffix(".json")
    before = json.loads(path.read_text())["rows"] if path.exists() else []
    rows = {(row["question"], row["texts"]): row for row in before}

    def keep(row: dict[str, Any]) -> None:
        row = {"data": "IMDb" if given.data else "made up", **row}
        rows[row["question"], row["texts"]] = row
        print("  ".join(f"{key} {value}" for key, value in row.items()), flush=True)
        if not given.quick:  # a long run that is stopped keeps what it has
            write(__file__, list(rows.values()))

    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        if "speed" in chosen:
            fitted = pipeline(list(train.texts[::less]), train.labels[::less])
            keep(speed(base, texts if given.quick else 4 * texts, fitted, 2))
        if "long" in chosen:
            keep(long(base, texts, 10**6 // less))
        if "opening" in chosen:
            keep(opening())
        counts = [10**5 // less, 10**6 // less] if "memory" in chosen else []
        for count in counts + ([10**7 // less] if "large" in chosen else []):
            keep(memory(base, linked(base, texts, count), "memory"))
        for count in (10**5 // less, 5 * 10**5 // less) if "memory" in chosen else ():
            keep(memory(base, one_table(base, texts, count), "memory, one .csv"))
        if "kills" in chosen:
            keep(kills(base, texts[: 6000 // less], 3 if given.quick else 10))


if __name__ == "__main__":
    main()
