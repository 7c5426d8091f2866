"""Answers about real transformers: a sentence on its way, its heads, a head run for ever."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import cache
from threading import Lock
from typing import Any

import numpy as np

from ...drawing.tables import jsonable
from ...pretrained.reading.plain import plain
from . import plane

Asked = Mapping[str, Any]
Tell = Callable[..., Any]
_MOST_TOKENS = 256
_MOST_WEIGHTS = 1_500_000  # of all heads together, which an answer holds as bytes


def transformer_answers(folders: Mapping[str, str]) -> dict[str, Callable[..., dict[str, Any]]]:
    """The answers of a server that was given these transformers (name -> folder)."""

    loading: dict[str, Future[Any]] = {}
    stages: dict[str, list[tuple[float, str]]] = {}
    tables: dict[str, dict[str, Any]] = {}
    one, lock = ThreadPoolExecutor(1), Lock()
    half = Lock()  # libraries ask a torch that is being imported for what it does not have yet
    quick = cache(plain)

    def load(name: str) -> Any:
        with half:
            import torch  # noqa: F401

        from ...pretrained import load_transformer

        stages[name].append((0.25, f"importing transformers, and reading {name}"))
        found = load_transformer(folders[name], local_files_only=True)
        quick.cache_clear()
        return found

    def begin(name: str) -> Future[Any]:
        """The model of that name, which is being loaded, or was; a failure is tried again."""
        with lock:
            known = loading.get(name)
            if known is None or (known.done() and known.exception()):
                stages[name] = [(0.02, "importing torch")]
                known = loading[name] = one.submit(load, name)
            return known

    def loaded(name: str, tell: Tell) -> Any:
        """The model, once it is there; the shares are those of MiniLM."""
        found = begin(name)
        told = len(stages[name]) if found.done() else 0
        while told < len(stages[name]) or not found.done():
            for step in stages[name][told:]:
                tell(*step)
                told += 1
            wait([found], 0.1)
        return found.result()

    def table(name: str, tell: Tell) -> dict[str, Any]:
        from ...pretrained.heads.head import HYPOTHESES
        from ...pretrained.pages.chapters import heads_chapter

        m = loaded(name, tell)
        every = [head for k in m.distinct_layers for head in m.heads(k)]
        rows = []
        for i, h in enumerate(every):
            tell(0.8 + 0.1 * i / len(every), f"head {i + 1} of {len(every)}")
            found = h.hypotheses()
            row = {"layer": h.layer, "head": h.index, "distances": [x.value for x in found]}
            rows.append(row | {"holds": [x.holds for x in found]})
        tell(0.9, "their spectra")
        chapter = heads_chapter(m, pictures=False)
        return jsonable(
            {"hypotheses": HYPOTHESES, "heads": rows, "summary": chapter.summary}
            | {"depth": m.depth, "width": m.width}
        )

    def chosen(asked: Asked) -> str:
        if not folders:
            start = "`cynosure serve --transformer FOLDER` (and pip install 'cynosure[models]')"
            raise ValueError(f"transformer: this server has none; start it with {start}")
        name = asked["transformer"] or next(iter(folders))
        if name not in folders:
            raise ValueError(f"transformer: there are {', '.join(folders)}; got {name!r:.60}")
        return name

    def trace(asked: Asked, tell: Tell = _silent) -> dict[str, Any]:
        """A sentence by layer: in NumPy as long as the model is not loaded, if that can be."""
        name, how = chosen(asked), {"words": asked["words"]}
        with half:
            there = name in loading and loading[name].done()
            first = None if there else quick(folders[name])
            found = None
            with suppress(LookupError):
                found = None if first is None else first.trace(asked["text"], **how)
            if found is not None:
                return shown(first, found, asked, tell)
        m = loaded(name, tell)
        tell(0.8, f"{m.depth} layers")
        return shown(m, m.trace(asked["text"], **how), asked, tell)

    def shown(m: Any, tr: Any, asked: Asked, tell: Tell) -> dict[str, Any]:
        """Tokens by layer, clusters, leaders and sinks, and the attention of one head."""
        from ...analysis.clustering import clusters
        from ...pretrained.reading import traces

        layer, head = _place(m, asked["layer"], asked["head"])
        if tr.z.shape[1] > _MOST_TOKENS:
            raise ValueError(f"text: at most {_MOST_TOKENS} tokens, got {tr.z.shape[1]}")
        tell(0.9, f"{m.depth * m.width} heads")
        lengths = (tr.z.astype(np.float64) ** 2).sum(axis=-1)
        sizes = [x or 1.0 for x in np.sqrt(lengths.mean(axis=-1)).tolist()]  # root mean square
        groups = [list(clusters(z / x, traces.NEAR).labels) for z, x in zip(tr.z, sizes)]
        keys = ("layer", "length", "mean_cosine", "clusters")
        maps = None  # of a long text; else bytes 255 sqrt(P): the weights of every head at a glance
        if tr.attentions.size <= _MOST_WEIGHTS:
            maps = b64encode(np.rint(255 * np.sqrt(tr.attentions)).astype(np.uint8)).decode()
        return jsonable(
            {
                "words": tr.words,
                "layers": len(tr.z) - 1,
                "heads": m.width,
                "view": plane(tr.z),
                "start": _start(tr.z[0]),
                "by_layer": [{k: row[k] for k in keys} for row in traces.sentence_table(tr)],
                "clusters": groups,
                "tokens": traces.leaders_by_layer(tr),
                "attention": traces.attention_table(tr),
                "layer": layer,
                "head": head,
                "P": tr.attentions[layer, head].astype(np.float64).round(6),
                "maps": maps,
                "notes": tr.trajectory.status.notes,
            }
        )

    def heads(asked: Asked, tell: Tell = _silent) -> dict[str, Any]:
        """All heads and the hypotheses; or one iterated: also frozen, and with no head."""
        name = chosen(asked)
        if asked["iterate"] is None:
            if name not in tables:
                tables[name] = table(name, tell)
            return tables[name]
        from ...pretrained.reading.iterations import agreement, foretold, random_tokens
        from ...pretrained.reading.traces import settling

        m = loaded(name, tell)
        layer, head = _place(m, asked["layer"] or 0, asked["head"] or 0)
        start: Any = asked["text"] or random_tokens(m)
        times, every = asked["iterate"], max(1, asked["iterate"] // 100)
        wanted: dict[str, dict[str, Any]] = {
            "run": {"parts": "head", "head": head},
            "frozen": {"parts": "head", "head": head, "frozen": True},
            "control": {"parts": "attention", "head": ()},
        }
        runs = {}
        for i, (kind, how) in enumerate(wanted.items()):
            tell(0.8 + 0.06 * i, f"{kind}: {times} times, {i + 1} of {len(wanted)}")
            runs[kind] = m.iterate(start, layer, times, save_every=every, **how)
        run = runs["run"]
        if len(run.z[0]) > _MOST_TOKENS:
            raise ValueError(f"text: at most {_MOST_TOKENS} tokens, got {len(run.z[0])}")
        length = min(map(len, runs.values()))
        joint = plane(np.stack([tr.values[:length].astype(np.float64) for tr in runs.values()]))
        kept, error = foretold(run, runs["frozen"])
        return jsonable(
            {"layer": layer, "head": head, "words": run.words, "t": run.t[:length]}
            | dict(zip(runs, joint))
            | {"ends": {kind: settling(tr) for kind, tr in runs.items()}}
            | {"agreement": agreement(run, runs["control"])}
            | {"foretold": kept, "frozen_error": error, "status": run.status}
        )

    def transformers(asked: Asked) -> dict[str, Any]:
        """Names of the transformers that can be looked into."""
        return {"transformers": list(folders)}

    def ready(asked: Asked) -> dict[str, Any]:
        """Begin to load the first transformer."""
        begin(next(iter(folders)))
        return {}

    return {"trace": trace, "heads": heads, "transformers": transformers, "ready": ready}


def _silent(done: float, what: str = "") -> None:
    """Nobody is told."""


def _start(z: np.ndarray) -> np.ndarray:
    """The tokens of layer 0 along their two principal directions, the longest of length 1.5."""
    flat = plane(z[None])[0][:, :2]
    longest = float(np.linalg.norm(flat, axis=1).max(initial=0.0))
    return flat * (1.5 / (longest or 1.0))


def _place(m: Any, layer: int, head: int) -> tuple[int, int]:
    if layer >= m.depth or head >= m.width:
        has = f"{m.name} has layers 0 to {m.depth - 1} and heads 0 to {m.width - 1}"
        raise ValueError(f"layer, head: {has}; got {layer} and {head}")
    return layer, head
