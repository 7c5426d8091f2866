"""The cases: mutations of files, command lines and calls that work."""

from __future__ import annotations

import gzip
import io
import json
import os
import random
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .commands import command, mutated_call, mutated_command
from .mutations import NUMBERS, bent, edited, flipped
from .outcomes import Case
from .saved import SPEC, model_files, once, put, saved_runs, small_model, swept

TEXTS = ["a good film , not dull", "", "tedious !", "wonderful story " * 30]


def case(seed: int, number: int, folder: Path, families: Sequence[str] = ()) -> Case:
    """Case `number` of `seed`, of one of `families` (all of FAMILIES); its files go to `folder`."""
    draw = random.Random(f"{seed}/{number}")
    name = draw.choice(list(families) or [*FAMILIES, "command", "call"])
    made = FAMILIES[name](draw, folder)

    def act() -> int | None:
        os.chdir(folder)  # a mutated name of an output is most often a relative one
        return made.act()

    return made._replace(act=act)


def _model(draw: random.Random, folder: Path) -> Case:
    """A model folder, its checksums right again: a clear error or a working model."""
    import safetensors.numpy as st

    from cynosure.classifier.model.model import _canonical, _sha256

    header, arrays, terms = _saved_model()
    for _ in range(draw.choice((1, 1, 2))):
        what = draw.randrange(5)
        if what < 2:
            name = draw.choice(sorted(arrays))
            arrays = {**arrays, name: bent(draw, arrays[name])}
            if draw.random() < 0.1:
                del arrays[name]
        elif what == 2:
            terms = edited(draw, terms)
        else:
            header = edited(draw, header)
    tensors = st.save({k: np.ascontiguousarray(v) for k, v in arrays.items()}) if all(
        v.dtype != np.complex128 for v in arrays.values()) else b""  # fmt: skip
    if draw.random() < 0.15:
        tensors = flipped(draw, tensors)
    files = {"model.safetensors": tensors, "vocabulary.json": json.dumps(terms).encode()}
    if isinstance(header, dict):
        header["sha256"] = {name: _sha256(data) for name, data in files.items()}
        header["checksum"] = _sha256(_canonical(header))
    files["model.json"] = json.dumps(header).encode()
    for name, data in files.items():
        (folder / name).write_bytes(data)

    def act() -> None:
        import cynosure as cy

        clf = cy.HardmaxClassifier.load(folder)
        clf.predict(TEXTS)
        clf.predict_proba(TEXTS)
        clf.explain(TEXTS[0])

    return Case("model", f"cy.HardmaxClassifier.load({str(folder)!r}).predict({TEXTS})", act)


def _saved_model() -> tuple[dict, dict[str, np.ndarray], list[str]]:
    from safetensors.numpy import load

    files = once(model_files)
    header = json.loads(files["model.json"])
    header.pop("checksum")
    return header, load(files["model.safetensors"]), json.loads(files["vocabulary.json"])


def _run(draw: random.Random, folder: Path) -> Case:
    """A saved run: its arrays bent, its header edited, or its bytes flipped."""
    data = draw.choice(once(saved_runs))
    path = folder / "run.npz"
    if draw.random() < 0.3:
        data = flipped(draw, data)
    else:
        with np.load(io.BytesIO(data)) as file:
            arrays = dict(file)
        if draw.random() < 0.5:
            tree = edited(draw, json.loads(arrays["header"].tobytes()))
            arrays["header"] = np.frombuffer(json.dumps(tree).encode(), np.uint8)
        else:
            name = draw.choice(sorted(arrays))
            arrays[name] = bent(draw, arrays[name])
        stream = io.BytesIO()
        np.savez(stream, **arrays)
        data = stream.getvalue()
    path.write_bytes(data)
    if draw.random() < 0.3:
        return command(["check", str(path)], "run")

    def act() -> None:
        import cynosure as cy

        run = cy.load(path)
        repr(run)
        if run.z.ndim == 3:
            cy.check(run)
            cy.roles(run) if run.history is not None else None

    return Case("run", f"run = cy.load({str(path)!r}); cy.check(run); cy.roles(run)", act)


def _tokens(draw: random.Random, folder: Path) -> Case:
    kind = draw.choice((".csv", ".tsv", ".txt", ".npy", ".npz"))
    z = np.random.default_rng(draw.randrange(9)).normal(size=(5, 2))
    stream = io.BytesIO()
    if kind == ".npy":
        np.save(stream, bent(draw, z))
    elif kind == ".npz":
        pack = draw.choice((np.savez, np.savez_compressed))
        pack(stream, **{draw.choice(("z", "z0", "w")): bent(draw, z)})
    else:
        mark = draw.choice((",", ";", "\t", " "))
        cells = [[str(x) if draw.random() < 0.9 else draw.choice(NUMBERS) for x in r] for r in z]
        stream.write("\n".join(mark.join(row) for row in cells).encode("utf-8", "replace"))
    data = stream.getvalue()
    path = folder / f"tokens{kind}"
    path.write_bytes(flipped(draw, data) if draw.random() < 0.6 else data)
    asked = draw.choice((["limit"], ["check"], ["simulate"], ["limit", "--exact"]))
    return command([*asked, str(path)], "tokens")


def _table(draw: random.Random, folder: Path) -> Case:
    kind = draw.choice((".csv", ".tsv", ".jsonl", ".csv.gz", ".jsonl.gz", ".txt", ".txt.gz"))
    rows = [(f"a {w} film {i}", "pos" if i % 2 else "neg")
            for i, w in enumerate(["good", "dull"] * 6)]  # fmt: skip
    if ".jsonl" in kind:
        lines = [json.dumps({"text": t, "label": y}) for t, y in rows]
        if draw.random() < 0.5:
            at = draw.randrange(len(lines))
            lines[at] = json.dumps(edited(draw, json.loads(lines[at])))
    else:
        mark = "\t" if "tsv" in kind else ","
        lines = [f"text{mark}label", *(f'"{t}"{mark}{y}' for t, y in rows)]
    data = "\n".join(lines).encode()
    if draw.random() < 0.6:
        data = flipped(draw, data)
    if kind.endswith(".gz"):
        data = gzip.compress(data)
        if draw.random() < 0.5:
            data = flipped(draw, data)
    path = folder / f"texts{kind}"
    path.write_bytes(data)
    if ".txt" in kind or draw.random() < 0.5:
        shipped = draw.random() < 0.05
        return command(["predict", *([] if shipped else [str(small_model(folder))]), str(path)],
                       "table")  # fmt: skip
    return command(["fit", str(path), "--out", str(folder / "model"), "--min-df", "1"], "table")


def _archive(draw: random.Random, folder: Path) -> Case:
    stream = io.BytesIO()
    shape = draw.choice((tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT))
    with tarfile.open(fileobj=stream, mode="w", format=shape) as tar:
        for i in range(6):
            text = f"a {'good' if i % 2 else 'dull'} film {i}".encode()
            label = "pos" if i % 2 else "neg"
            info = tarfile.TarInfo(f"aclImdb/train/{label}/{i}_{i}.txt")
            info.size = len(text)
            if draw.random() < 0.2:
                info.name = draw.choice(("../" + info.name, "/" + info.name, "é" * 40, "x" * 90))
            if draw.random() < 0.2:
                info.type = draw.choice((tarfile.SYMTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE))
            tar.addfile(info, io.BytesIO(text))
    data = stream.getvalue()
    if draw.random() < 0.6:
        data = flipped(draw, data)
    if draw.random() < 0.5:
        data = gzip.compress(data)
        data = flipped(draw, data) if draw.random() < 0.5 else data
    path = folder / "reviews.tar.gz"
    path.write_bytes(data)
    return command(["fit", str(path), "--out", str(folder / "m"), "--min-df", "1"], "archive")


def _bulk(draw: random.Random, folder: Path) -> Case:
    """Files of texts, one of them damaged, and now and then a manifest."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts = [f"a {w} film {i}" for i, w in enumerate(["good", "dull", "not"] * 5)]
    (folder / "in").mkdir()
    sink = io.BytesIO()
    pq.write_table(pa.table({"text": texts, "n": range(15)}), sink, row_group_size=6)
    lines = [json.dumps({"text": t, "n": i}) for i, t in enumerate(texts)]
    files = {
        "a.parquet": sink.getvalue(),
        "b.jsonl": "\n".join(lines).encode(),
        "c.csv": "\n".join(["n,text", *(f'{i},"{t}"' for i, t in enumerate(texts))]).encode(),
        "d.jsonl.gz": gzip.compress("\n".join(lines).encode()),
    }
    name = draw.choice(sorted(files))
    files[name] = flipped(draw, files[name])
    for each, data in files.items():
        (folder / "in" / each).write_bytes(data)
    if draw.random() < 0.2:
        (folder / "out").mkdir()
        begun = {"format": "cynosure-bulk", "version": 1, "parts": [], "checksum": "0"}
        (folder / "out" / "_manifest.json").write_text(json.dumps(edited(draw, begun)))
    words = ["predict", str(folder / "in"), "--out", str(folder / "out"), "--rows", "5"]
    words += ["--model", str(small_model(folder))]
    return command([*words, *draw.choice(([], ["--id-column", "n"]))], "bulk")


def _sweep(draw: random.Random, folder: Path) -> Case:
    """A store of a sweep, one of its files changed or gone, and the file that asks for it."""
    files = dict(once(swept))
    name = draw.choice(sorted(files))
    what = draw.randrange(4)
    if what == 0:
        del files[name]
    elif what == 1 and name.endswith(".json"):
        tree = edited(draw, json.loads(files[name]))
        if name == "zarr.json" and isinstance(tree, dict) and draw.random() < 0.8:
            tree = _vouched(tree)
        files[name] = json.dumps(tree).encode()
    elif what < 3:
        files[name] = flipped(draw, files[name])
    put(folder / "s.zarr", files)
    spec = flipped(draw, SPEC.encode()) if draw.random() < 0.4 else SPEC.encode()
    put(folder, {"spec.toml": spec})
    store = ["--store", str(folder / "s.zarr")]
    if draw.random() < 0.7:
        return command(["sweep", str(folder / "spec.toml"), *store], "sweep")
    return command(["sweep", "--status", *store], "sweep")


def _vouched(tree: dict[str, Any]) -> dict[str, Any]:
    """The header of a store, its checksum right again."""
    from cynosure._files.folders import canonical, sha256

    about = tree.get("attributes")
    if isinstance(about, dict):
        about.pop("checksum", None)
        about["checksum"] = sha256(canonical(about))
    return tree


FAMILIES = {
    "model": _model,
    "run": _run,
    "table": _table,
    "tokens": _tokens,
    "archive": _archive,
    "command": mutated_command,
    "call": mutated_call,
    "bulk": _bulk,
    "sweep": _sweep,
}
