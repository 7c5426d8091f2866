"""The cases: mutations of files, command lines and calls that work."""

from __future__ import annotations

import gzip
import io
import json
import random
import re
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .outcomes import Case

TEXTS = ["a good film , not dull", "", "tedious !", "wonderful story " * 30]
NUMBERS = (
    "0 -1 1 2 3 7 0.5 1e-308 5e-324 1e308 -1e308 1e999 nan inf -inf 1/2 0/1 1/0 2**3 1_0 0x10 "
    "99999999999999999999 -0.0 1e-9 ½ abc"
).split() + ["", " ", "x" * 300, "\x00", "é\u202e", "-", "1,2", "a=b", "0.1.2"]
WEIRD = (0, -1, 1, 10**9, 2**63, -(2**63), 1e308, -1e308, 5e-324, float("nan"), float("inf"),
         None, True, "", "x", [], {}, [[]], 0.5, 1e-300)  # fmt: skip


FAMILIES = ("model", "run", "table", "tokens", "archive", "command", "call", "bulk", "network")


def case(seed: int, number: int, folder: Path, families: Sequence[str] = ()) -> Case:
    """Case `number` of `seed`, of one of `families` (all of FAMILIES); its files go to `folder`."""
    draw = random.Random(f"{seed}/{number}")
    made = (_model, _run, _table, _tokens, _archive, _command, _call, _bulk, _network)
    makers = dict(zip(FAMILIES, made, strict=True))
    name = draw.choice(list(families) or [*FAMILIES, "command", "call"])
    return makers[name](draw, folder)


# --- mutations -----------------------------------------------------------------------------------


def flipped(draw: random.Random, data: bytes) -> bytes:
    """Bytes changed, cut, doubled or put in."""
    out = bytearray(data)
    for _ in range(draw.choice((1, 1, 1, 2, 5, 30))):
        at = draw.randrange(len(out) + 1) if out else 0
        what = draw.randrange(6)
        if what == 0 and out:
            out[at % len(out)] ^= 1 << draw.randrange(8)
        elif what == 1:
            del out[at : at + draw.choice((1, 2, 8, 100))]
        elif what == 2:
            out = out[:at]
        elif what == 3:
            out[at:at] = draw.choice((b"\0", b"\xff" * 8, b"[" * 50, b"1" * 40, b'"', b"\n", b","))
        elif what == 4 and out:
            out[at % len(out)] = draw.randrange(256)
        else:
            out[at:at] = out[max(0, at - 64) : at]
    return bytes(out)


def edited(draw: random.Random, tree: Any) -> Any:
    """A JSON value with one of its parts replaced, dropped or repeated."""
    if isinstance(tree, dict) and tree and draw.random() < 0.85:
        key = draw.choice(sorted(tree))
        if draw.random() < 0.15:
            return {k: v for k, v in tree.items() if k != key}
        return {**tree, key: edited(draw, tree[key])}
    if isinstance(tree, list) and tree and draw.random() < 0.7:
        at = draw.randrange(len(tree))
        if draw.random() < 0.3:
            return tree[:at] + tree[at + draw.choice((0, 1)) :] + tree[:1]
        return [*tree[:at], edited(draw, tree[at]), *tree[at + 1 :]]
    return draw.choice(WEIRD)


def bent(draw: random.Random, x: np.ndarray) -> np.ndarray:
    """An array of another shape, type or content."""
    what = draw.randrange(9)
    if what == 0:
        return x[: draw.randrange(len(x) + 1)] if x.ndim else x
    if what == 1:
        return np.concatenate((x, x)) if x.ndim else x[None]
    if what == 2:
        kinds = (np.float32, np.int8, np.uint64, np.bool_, np.complex128, np.float16, np.int64)
        return x.astype(draw.choice(kinds))
    if what == 3:
        return x[..., None]
    if what == 4:
        return x.T.copy()
    if what == 5:
        return np.zeros((0, *x.shape[1:]), x.dtype)
    if what == 6 and x.ndim:
        return x[0]
    out = x.copy().reshape(-1)
    if out.size and out.dtype.kind == "f":
        value = draw.choice((0.0, np.nan, np.inf, 1e308, -1e300, 5e-324, 1e100, -1.0))
        out[draw.randrange(out.size) if what == 7 else slice(None)] = value
    elif out.size and out.dtype.kind in "iu":
        largest = min(2**31 - 1, int(np.iinfo(out.dtype).max))
        out[draw.randrange(out.size)] = draw.choice((0, 1, 100, largest))
    return out.reshape(x.shape)


# --- files ---------------------------------------------------------------------------------------


def _model(draw: random.Random, folder: Path) -> Case:
    """A model folder, its checksums right again: a clear error or a working model."""
    import safetensors.numpy as st

    from cynosure.classifier.model import _canonical, _sha256

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


_CACHE: dict[str, Any] = {}


def _once(make: Callable[[], Any]) -> Any:
    if make.__name__ not in _CACHE:
        _CACHE[make.__name__] = make()
    return _CACHE[make.__name__]


def _saved_model() -> tuple[dict, dict[str, np.ndarray], list[str]]:
    def fitted_model() -> tuple[bytes, bytes, bytes]:
        import tempfile

        import cynosure as cy

        data = cy.datasets.synthetic(60, classes=("a", "b", "c"))
        with tempfile.TemporaryDirectory() as folder:
            path = cy.HardmaxClassifier(max_features=40).fit(data.texts, data.labels)
            path = path.save(Path(folder) / "model")
            names = ("model.json", "model.safetensors", "vocabulary.json")
            return tuple((path / name).read_bytes() for name in names)  # type: ignore[return-value]

    from safetensors.numpy import load

    header, tensors, terms = _once(fitted_model)
    header = json.loads(header)
    header.pop("checksum")
    return header, load(tensors), json.loads(terms)


def _run(draw: random.Random, folder: Path) -> Case:
    """A saved run: its arrays bent, its header edited, or its bytes flipped."""

    def saved_runs() -> list[bytes]:
        import tempfile

        import cynosure as cy

        z = np.random.default_rng(0).normal(size=(6, 2))
        runs = [
            cy.simulate(cy.PureAttention(), z, layers=4),
            cy.simulate(cy.RescaledFlow(), z, time=0.5),
        ]
        with tempfile.TemporaryDirectory() as place:
            return [run.save(Path(place) / "r.npz").read_bytes() for run in runs]

    data = draw.choice(_once(saved_runs))
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
        return _main(["check", str(path)], "run")

    def act() -> None:
        import cynosure as cy

        run = cy.load(path)
        repr(run)
        if run.z.ndim == 3:
            cy.check(run)
            cy.roles(run) if run.history is not None else None

    return Case("run", f"run = cy.load({str(path)!r}); cy.check(run); cy.roles(run)", act)


def _network(draw: random.Random, folder: Path) -> Case:
    """A saved exact classifier: its JSON edited, or its bytes flipped."""

    def saved_network() -> bytes:
        import tempfile

        import cynosure as cy

        sequences = [[[0, 1]], [[0, 1], [2, 2]], [[2, 2], [2, 2], [0, 1]], [[5, "1/3"]]]
        network = cy.construct_classifier(sequences, ["a", "b", "c", "a"])
        with tempfile.TemporaryDirectory() as place:
            return network.save(Path(place) / "n.json").read_bytes()

    data = _once(saved_network)
    if draw.random() < 0.4:
        data = flipped(draw, data)
    else:
        data = json.dumps(edited(draw, json.loads(data))).encode()
    path = folder / "network.json"
    path.write_bytes(data)

    def act() -> None:
        import cynosure as cy

        network = cy.ExactClassifier.load(path)
        repr(network), network._repr_html_()
        network.predict([[0.5] * network.d, [-1.0] * network.d])

    said = f"n = cy.ExactClassifier.load({str(path)!r}); n.predict([[0.5] * n.d, [-1.0] * n.d])"
    return Case("network", said, act)


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
    command = draw.choice((["limit"], ["check"], ["simulate"], ["limit", "--exact"]))
    return _main([*command, str(path)], "tokens")


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
        return _main(["predict", str(path)], "table")
    return _main(["fit", str(path), "--out", str(folder / "model"), "--min-df", "1"], "table")


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
    return _main(["fit", str(path), "--out", str(folder / "m"), "--min-df", "1"], "archive")


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
    return _main([*words, *draw.choice(([], ["--id-column", "n"]))], "bulk")


# --- command lines -------------------------------------------------------------------------------

COMMANDS = [
    "limit golden:G1 --alpha 1/2 --exact",
    "limit gaussian:n=12,d=2 --alpha 0.5 --max-layers 200 --json",
    "limit FILE --A MATRIX --out OUT.csv",
    "simulate gaussian:n=8,d=2 --alpha 0.5 --layers 5 --out OUT.npz",
    "simulate box:n=6,d=2 --dynamics rescaled --V MATRIX --beta 2 --time 1",
    "simulate sphere:n=6,d=3 --dynamics sphere --beta 4 --causal --stepper rk4:dt=0.1 --time 1",
    "simulate FILE --attention softmax:beta=5 --attention hardmax --layers 3 --json",
    "simulate FILE --dynamics pure_attention --save-every 2 --layers 6 --alpha 1",
    "check gaussian:n=9,d=2 --alpha 1 --layers 4 --only B1,B5",
    "check RUN --json",
    "predict TEXTS --jsonl",
    "explain good --json",
    "info --json",
    "--config CONFIG limit FILE",
]


def _command(draw: random.Random, folder: Path) -> Case:
    """A command line that works, with words changed, dropped, doubled or swapped."""
    words = draw.choice(COMMANDS).split()
    for _ in range(draw.choice((1, 1, 2, 3))):
        at = draw.randrange(1, len(words) + 1)
        what = draw.randrange(6)
        if what == 0 and len(words) > 1:
            del words[at - 1]
        elif what == 1:
            words.insert(at, words[at - 1])
        elif what == 2 and words[at - 1].startswith("--") and at < len(words):
            words[at] = draw.choice(NUMBERS)
        elif what == 3 and any(c in words[at - 1] for c in "=:"):
            head, mark, tail = words[at - 1].rpartition(draw.choice("=:,"))
            words[at - 1] = head + mark + (draw.choice(NUMBERS) if mark else tail)
        elif what == 4:
            words[at - 1] = draw.choice(NUMBERS)
        else:
            words.insert(at, draw.choice(("--json", "--exact", "--force", "-v", "--causal", "--")))
    return _main([_filled(word, folder) for word in words], "command")


def _filled(word: str, folder: Path) -> str:
    if "FILE" in word or "MATRIX" in word or "TEXTS" in word or "CONFIG" in word or "RUN" in word:
        (folder / "file.csv").write_text("1,0\n0,1\n-1,0.5\n0.25,0.25\n")
        (folder / "matrix.csv").write_text("2,0.5\n0.5,1\n")
        (folder / "texts.txt").write_text("a good film\n\ndull\n")
        (folder / "config.toml").write_text('[limit]\nalpha = "1/2"\nmax-layers = 50\n')
    for name, file in (
        ("FILE", "file.csv"), ("MATRIX", "matrix.csv"), ("TEXTS", "texts.txt"),
        ("CONFIG", "config.toml"), ("RUN", "run.npz"), ("OUT", "out"),
    ):  # fmt: skip
        word = word.replace(name, str(folder / file))
    return word


def _main(words: list[str], family: str) -> Case:
    def act() -> int:
        from cynosure.cli import main

        return main(words)

    return Case(family, f"cynosure.cli.main({words!r})", act)


# --- calls ---------------------------------------------------------------------------------------

CALLS = {
    "simulate": "cy.simulate(cy.PureAttention(alpha=a), z, layers=k)",
    "softmax": "cy.simulate(cy.PureAttention(cy.Softmax(a)), z, layers=k)",
    "flow": "cy.simulate(cy.AttentionFlow(), z, time=a, stepper=cy.RK4(b))",
    "adaptive": "cy.simulate(cy.RescaledFlow(), z, time=a)",
    "sphere": "cy.simulate(cy.SphereFlow(cy.Softmax(a)), z, time=b)",
    "limit": "cy.limit(cy.PureAttention(alpha=a), z, max_layers=k)",
    "check": "cy.check(cy.simulate(cy.PureAttention(), z, layers=k))",
    "check_array": "cy.check(z)",
    "roles": "cy.roles(cy.simulate(cy.PureAttention(alpha=a), z, layers=k)).leaders",
    "clusters": "cy.clusters(z, a)",
    "hull": "cy.hull(z)",
    "matrix": "cy.simulate(cy.PureAttention(cy.Hardmax(z)), z, layers=k)",
    "vocabulary": "cy.HardmaxClassifier(dim=k, leaders=a, min_df=1).fit(t, y).predict(t)",
    "at": "cy.simulate(cy.PureAttention(), z, layers=4).at(a)",
    "nearest": "cy.simulate(cy.PureAttention(), z, layers=4).nearest(a)",
    "exact": "cy.limit(cy.PureAttention(alpha=a), z, exact=True, deadline=5)",
    "sinkhorn": "cy.simulate(cy.PureAttention(cy.Sinkhorn(a)), z, layers=k)",
    "localmax": "cy.simulate(cy.PureAttention(cy.Localmax(a)), z, layers=k)",
    "causal": "cy.simulate(cy.PureAttention(cy.Causal(cy.Hardmax()), alpha=a), z, layers=k)",
    "noisy": "cy.simulate(cy.NoisySphere(sigma=a), z, layers=k)",
    "euclidean": "cy.simulate(cy.EuclideanFlow(), z, time=a, deadline=5)",
    "control": "cy.control(z, k)",
    "removal": "cy.remove_leader(z, k)",
    "recognise": "cy.recognise(cy.simulate(cy.RescaledFlow(), z, time=1.0, deadline=5))",
    "forward": "cy.simulate(cy.FeedForward(z, b), z, layers=k)",
    "form": "cy.limit(cy.PureAttention(cy.Hardmax(z[:2]), alpha=a), z, deadline=5)",
    "masked": "cy.simulate(cy.PureAttention(), z, layers=k, mask=[True, False, a, b, True])",
    "times": "cy.simulate(cy.AttentionFlow(), z, times=[0, a, b], stepper=cy.Euler(0.1))",
    "words": "cy.load_pretrained().explain(a)",
    "predict": "cy.load_pretrained().predict([a, b, 'good'])",
    "select": "cy.simulate(cy.PureAttention(), z, layers=1).select(k)",
}


def _call(draw: random.Random, folder: Path) -> Case:
    """A call of the library with arguments near those that work."""
    name = draw.choice(sorted(CALLS))
    z: Any = np.round(np.random.default_rng(draw.randrange(99)).normal(size=(5, 2)), 1)
    if draw.random() < 0.7:
        z = bent(draw, z)
    if z.dtype.kind == "f":
        with np.errstate(all="ignore"):
            z = z * draw.choice((1.0, 1.0, 1e-300, 1e300, 1e154, 0.0))
    given: dict[str, Any] = {
        "z": draw.choice((z, z.tolist(), tuple(z.tolist()))) if z.ndim else z,
        "a": draw.choice((0.5, 1, 1.0, 2.5, *WEIRD)),
        "b": draw.choice((0.1, 0.5, *WEIRD)) if draw.random() < 0.5 else 0.1,
        "k": draw.choice((1, 2, 5, 30)) if draw.random() < 0.7 else draw.choice(WEIRD),
        "t": ["good film", "dull film"] * 5,
        "y": [draw.choice((0, 1, "a", "b", None)) for _ in range(10)]
        if draw.random() < 0.5
        else [0, 1] * 5,
    }
    used = {k: v for k, v in given.items() if re.search(rf"\b{k}\b(?!=)", CALLS[name])}
    lines = [f"{k} = {v!r}" for k, v in used.items()]
    code = "\n".join(["import cynosure as cy; from numpy import *", *lines, CALLS[name]])

    def act() -> None:
        import warnings

        import cynosure as cy

        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            eval(CALLS[name], {"cy": cy, **given})

    return Case(f"call {name}", code, act)
