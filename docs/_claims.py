"""The page of claims: every number is read from the JSON that its benchmark wrote."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from _markdown import code, table

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"
Rows = list[dict[str, Any]]


class Claim(NamedTuple):
    """One number: what it is, under which conditions, and where the JSON has it."""

    what: str
    setting: str
    value: Callable[[Rows], float | str]


class Table(NamedTuple):
    """The claims that one benchmark decides."""

    title: str
    command: str
    about: str
    claims: tuple[Claim, ...]


def _one(rows: Rows, **wanted: Any) -> dict[str, Any]:
    """The first row with these values."""
    return next(row for row in rows if all(row.get(k) == v for k, v in wanted.items()))


def _layers(d: int, rival: str, law: str = "gaussian") -> Callable[[Rows], float]:
    def ratio(rows: Rows) -> float:
        took = _one(rows, d=d, law=law)["milliseconds"]
        return float(took[rival] / took["ours"])

    return ratio


def _review(model: str, *path: str | int) -> Callable[[Rows], float]:
    def value(rows: Rows) -> float:
        found: Any = _one(rows, model=model)
        for key in path:
            found = found[key]
        return float(found)

    return value


def _requests(path: str) -> Callable[[Rows], float]:
    return lambda rows: float(_one(rows, path=path, clients=64)["requests_per_second"])


def _golden(rows: Rows) -> str:
    cases = [row for row in rows if "case" in row]
    return f"{sum(row['certified'] for row in cases)} of {len(cases)}"


SHIPPED, FITTED, LINEAR = "as shipped", "uni+bi+negation", "TF-IDF + logistic regression, uni+bi"
FILM = "IMDb, official test split"
TABLES = {
    "certified_limits": Table(
        "Certified limits",
        "python benchmarks/certified_limits.py",
        "Limits in floating point are compared with limits in exact fractions.",
        (
            Claim("golden cases proved", "G1 to G4, five values of α", _golden),
            Claim(
                "float limits equal to exact limits",
                "1,000 sets of integer tokens with many ties",
                lambda rows: rows[4]["equal"],
            ),
            Claim(
                "float limits equal to exact limits",
                "1,000 rotated squares",
                lambda rows: rows[5]["equal to rationals"],
            ),
            Claim("of these, still tied", "the same", lambda rows: rows[5]["keep a tie"]),
            Claim(
                "seconds for all limits",
                "1,000,000 Gaussian tokens, d = 2",
                lambda rows: _one(rows, law="gaussian")["seconds"],
            ),
            Claim(
                "first layer of the late leader",
                "G4, α = 1/10",
                lambda rows: _one(rows, case="G4", alpha="1/10")["settled"],
            ),
        ),
    ),
    "hardmax_layers": Table(
        "One exact layer",
        "python benchmarks/hardmax_layers.py",
        "10,000 Gaussian tokens. A ratio is the time of the other program divided by ours. faiss "
        "computes in float32 and is not exact; SciPy's hull handles neither ties nor rounding.",
        (
            Claim("time of SciPy's hull / ours", "d = 2", _layers(2, "SciPy hull")),
            Claim("time of NumPy / ours", "d = 2", _layers(2, "NumPy blocks")),
            Claim("time of NumPy / ours", "d = 8", _layers(8, "NumPy blocks")),
            Claim("time of NumPy / ours", "d = 16", _layers(16, "NumPy blocks")),
            Claim("time of NumPy / ours", "d = 64", _layers(64, "NumPy blocks")),
            Claim("time of faiss / ours", "d = 16", _layers(16, "faiss (float32)")),
            Claim("time of faiss / ours", "d = 64", _layers(64, "faiss (float32)")),
            Claim("64 layers / one layer", "d = 2", _layers(2, "ours, 64 layers")),
            Claim("64 layers / one layer", "d = 64", _layers(64, "ours, 64 layers")),
        ),
    ),
    "hardmax_batch": Table(
        "Many small configurations",
        "python benchmarks/hardmax_batch.py",
        "1,024 configurations of 128 tokens, 8 layers. The best rival is one of `torch.bmm`, "
        "`np.matmul` and the published loop.",
        (
            Claim(
                "configurations per second",
                "d = 2",
                lambda rows: _one(rows, d=2)["per second"]["ours"],
            ),
            Claim("speed / best rival", "d = 2", lambda rows: _one(rows, d=2)["ours / best rival"]),
            Claim(
                "speed / best rival", "d = 16", lambda rows: _one(rows, d=16)["ours / best rival"]
            ),
        ),
    ),
    "hardmax_gpu": Table(
        "On a GPU",
        "python benchmarks/hardmax_gpu.py",
        "One NVIDIA H200.",
        (
            Claim(
                "milliseconds for one exact layer",
                "1,000,000 Gaussian tokens, d = 16",
                lambda rows: _one(rows, n=1000000, d=16, law="gaussian")["milliseconds"]["search"],
            ),
            Claim(
                "milliseconds for torch's float64 maximum",
                "the same",
                lambda rows: _one(rows, n=1000000, d=16, law="gaussian")["milliseconds"][
                    "torch max"
                ],
            ),
            Claim(
                "milliseconds for all limits",
                "the same",
                lambda rows: _one(rows, n=1000000, d=16, law="gaussian")["milliseconds"]["limit"],
            ),
            Claim(
                "configurations per second, kernel alone",
                "128 tokens, d = 8, 8 layers",
                lambda rows: _one(rows, batch=100000, d=8)["configurations/s"]["kernel"],
            ),
            Claim(
                "the same with all histories on the host",
                "128 tokens, d = 8, 8 layers",
                lambda rows: _one(rows, batch=100000, d=8)["configurations/s"]["call"],
            ),
            Claim(
                "results that differ from the processor's",
                "the same",
                lambda rows: _one(rows, batch=100000, d=8)["differ"],
            ),
        ),
    ),
    "reading": Table(
        "Film reviews",
        "python benchmarks/reading.py --data aclImdb.tar.gz",
        "Deciding words are those of `explain(text).enough`. *0 layers* is the same model if every "
        "term counts. A standard error of an accuracy is 0.0017.",
        (
            Claim("accuracy, shipped model", FILM, _review(SHIPPED, "accuracy")),
            Claim("accuracy with 0 layers", FILM, _review(SHIPPED, "0 layers")),
            Claim("deciding words, mean", FILM, _review(SHIPPED, "words", 0)),
            Claim("deciding words, median", FILM, _review(SHIPPED, "words", 1)),
            Claim(
                "labels that the layers change",
                "of 25,000",
                _review(SHIPPED, "verdicts the layers change"),
            ),
            Claim(
                "words that overturn a label, mean",
                "1,000 reviews",
                _review(SHIPPED, "overturn, mean and median", 0),
            ),
            Claim(
                "share overturned within 13 words",
                "1,000 reviews",
                _review(SHIPPED, "overturned within 13 words"),
            ),
            Claim("calibration error", FILM, _review(SHIPPED, "calibration error")),
            Claim("accuracy, default of a new fit", FILM, _review(FITTED, "accuracy")),
            Claim("deciding words of it, mean", FILM, _review(FITTED, "words", 0)),
            Claim("accuracy, TF-IDF and logistic regression", FILM, _review(LINEAR, "accuracy")),
            Claim("accuracy, NB-SVM", FILM, _review("NB-SVM, uni+bi", "accuracy")),
        ),
    ),
    "bulk": Table(
        "Labels for many texts",
        "python benchmarks/bulk.py --data aclImdb.tar.gz",
        "Each row gets its label, probability and deciding words. The rival is TF-IDF with "
        "logistic regression of scikit-learn under Dask.",
        (
            Claim(
                "texts per second, one process",
                "1,000,000 reviews",
                lambda rows: _one(rows, question="long run")["texts per second, 1"],
            ),
            Claim(
                "texts per second, two processes",
                "1,000,000 reviews",
                lambda rows: _one(rows, question="long run")["texts per second, 2"],
            ),
            Claim(
                "speed / scikit-learn, one process each",
                "100,000 reviews",
                lambda rows: _one(rows, question="texts per second")[
                    "ours / scikit-learn, 1 and 1"
                ],
            ),
            Claim(
                "MB of memory at most",
                "10,000,000 reviews",
                lambda rows: _one(rows, question="memory", texts=10000000)["largest, MB"],
            ),
            Claim(
                "rows lost or duplicated",
                "10 kills",
                lambda rows: (
                    _one(rows, question="kills")["rows lost"]
                    + _one(rows, question="kills")["rows doubled"]
                ),
            ),
        ),
    ),
    "sweep": Table(
        "Sweeps",
        "python benchmarks/sweep.py",
        "Two processes on two cores.",
        (
            Claim(
                "speed-up over a plain loop, processes",
                "1,152 cells",
                lambda rows: _one(rows, part="speed-up")["speed-up"]["sweep, workers=2"],
            ),
            Claim(
                "speed-up over a plain loop, Dask",
                "1,152 cells",
                lambda rows: _one(rows, part="speed-up")["speed-up"]["sweep, Dask with 2 workers"],
            ),
            Claim(
                "milliseconds added per cell",
                "16,000 cells",
                lambda rows: _one(rows, part="overhead")[
                    "sweep into a store, ms per cell above the loop"
                ],
            ),
            Claim(
                "values that differ after kills",
                "100 kills",
                lambda rows: _one(rows, part="kills")["values differing"],
            ),
        ),
    ),
    "page": Table(
        "The page",
        "python benchmarks/page.py",
        "A token is dragged in Chromium.",
        (
            Claim(
                "updates per second",
                "50 tokens",
                lambda rows: _one(rows, n=50)["updates_per_second"],
            ),
            Claim(
                "updates per second",
                "2,000 tokens",
                lambda rows: _one(rows, n=2000)["updates_per_second"],
            ),
            Claim(
                "milliseconds from move to answer",
                "50 tokens",
                lambda rows: _one(rows, n=50)["round_trip_ms"],
            ),
        ),
    ),
    "serve": Table(
        "The HTTP API",
        "python benchmarks/serve.py --soak 600",
        "64 clients at once. The rival is FastAPI with TF-IDF and logistic regression.",
        (
            Claim("answers per second", "limits of 50 tokens", _requests("/api/v1/limit")),
            Claim("answers per second", "an explanation", _requests("/api/v1/explain")),
            Claim("answers per second", "labels of 100 texts", _requests("/api/v1/predict")),
            Claim("answers per second, rival", "labels of 100 texts", _requests("/predict")),
        ),
    ),
}


def page() -> str:
    """The claims, one a row, one number a cell."""
    parts = [
        "# Claims",
        "Every number on this page is read from the file that the command wrote. Run the command "
        "to check it: it prints the table and writes the file again. Unless a section says "
        "otherwise, the machine has two x86 cores.",
    ]
    for name, shown in TABLES.items():
        rows: Rows = json.loads((BENCHMARKS / f"{name}.json").read_text("utf-8"))["rows"]
        cells = [[c.what, c.setting, _number(c.value(rows))] for c in shown.claims]
        parts += [
            f"## {shown.title}",
            f"{shown.about} {_when(name)}".strip(),
            f"```sh\n{shown.command}\n```",
            table(["claim", "setting", "value"], cells),
        ]
    return "\n\n".join(parts)


def _number(value: float | str) -> str:
    if isinstance(value, str):
        return value
    if value == int(value):
        return f"{int(value):,}"
    return f"{value:,.0f}" if value >= 100 else f"{value:.4g}"


def _when(name: str) -> str:
    """Date and revision of the measurement, if the history is there."""
    command = ["git", "log", "-1", "--format=%as %h", "--", f"{name}.json"]
    try:
        done = subprocess.run(command, cwd=BENCHMARKS, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    date, _, revision = done.stdout.strip().partition(" ")
    return f"Recorded on {date} at revision {code(revision)}." if revision else ""
