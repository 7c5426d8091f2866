"""Answers about real transformers: a sentence on its way, its heads, a head run for ever."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..drawing.report import jsonable
from .answers import plane

__all__ = ["insides"]

Asked = Mapping[str, Any]
Tell = Callable[..., Any]
_MOST_TOKENS = 256


def insides(folders: Mapping[str, str]) -> dict[str, Callable[..., dict[str, Any]]]:
    """The answers of a server that was given these transformers (name -> folder)."""

    models: dict[str, Any] = {}
    tables: dict[str, dict[str, Any]] = {}

    def loaded(name: str, tell: Tell) -> Any:
        """The transformer, read once; the shares are those of MiniLM's first reading."""
        if name not in models:
            tell(0.02, "importing torch")
            from ..pretrained import load_transformer

            tell(0.3, f"reading the weights of {name}")
            models[name] = load_transformer(folders[name], local_files_only=True)
        return models[name]

    def table(name: str, tell: Tell) -> dict[str, Any]:
        from ..pretrained.chapters import heads_chapter
        from ..pretrained.heads import HYPOTHESES

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
            raise ValueError(
                "transformer: this server has none; start it with `cynosure serve --transformer "
                "FOLDER` (and pip install 'cynosure[models]')"
            )
        name = asked["transformer"] or next(iter(folders))
        if name not in folders:
            raise ValueError(f"transformer: there are {', '.join(folders)}; got {name!r:.60}")
        return name

    def trace(asked: Asked, tell: Tell = _silent) -> dict[str, Any]:
        """Tokens by layer, clusters, leaders and sinks, and the attention of one head."""
        from ..analysis.clustering import clusters
        from ..pretrained.traces import NEAR, attention_table, leaders_by_layer, sentence_table

        m = loaded(chosen(asked), tell)
        layer, head = _place(m, asked["layer"], asked["head"])
        tell(0.8, f"{m.depth} layers")
        tr = m.trace(asked["text"], words=asked["words"])
        if tr.z.shape[1] > _MOST_TOKENS:
            raise ValueError(f"text: at most {_MOST_TOKENS} tokens, got {tr.z.shape[1]}")
        tell(0.9, f"{m.depth * m.width} heads")
        rows = attention_table(tr)
        keys = ("layer", "length", "mean_cosine", "clusters")
        return jsonable(
            {
                "words": tr.words,
                "layers": len(tr.z) - 1,
                "heads": m.width,
                "view": plane(tr.z),
                "by_layer": [{k: row[k] for k in keys} for row in sentence_table(tr)],
                "clusters": [list(clusters(z / _size(z), NEAR).labels) for z in tr.z],
                "tokens": leaders_by_layer(tr),
                "attention": rows,
                "layer": layer,
                "head": head,
                "P": tr.attentions[layer, head].astype(np.float64).round(6),
                "notes": tr.trajectory.status.notes,
            }
        )

    def heads(asked: Asked, tell: Tell = _silent) -> dict[str, Any]:
        """All heads beside the hypotheses; one of them iterated, beside its controls.

        `frozen` is the same head with the attention of its first run in all of them, `control` the
        layer with every head silent.
        """
        name = chosen(asked)
        if asked["iterate"] is None:
            if name not in tables:
                tables[name] = table(name, tell)
            return tables[name]
        from ..pretrained.iterations import agreement, foretold, random_tokens
        from ..pretrained.traces import settling

        m = loaded(name, tell)
        layer, head = _place(m, asked["layer"] or 0, asked["head"] or 0)
        start: Any = asked["text"] or random_tokens(m)
        options: dict[str, Any] = {"save_every": max(1, asked["iterate"] // 100)}

        def go(parts: str, only: Any, frozen: bool = False) -> Any:
            return m.iterate(
                start, layer, asked["iterate"], parts=parts, head=only, frozen=frozen, **options
            )

        wanted: dict[str, Callable[[], Any]] = {
            "run": lambda: go("head", head),
            "frozen": lambda: go("head", head, frozen=True),
            "control": lambda: go("attention", ()),
        }
        runs = {}
        for i, (kind, make) in enumerate(wanted.items()):
            tell(0.8 + 0.06 * i, f"{kind}: {asked['iterate']} times, {i + 1} of {len(wanted)}")
            runs[kind] = make()
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
            | {"foretold": kept, "frozen_error": error}
        )

    def transformers(asked: Asked) -> dict[str, Any]:
        """Names of the transformers that can be looked into."""
        return {"transformers": list(folders)}

    return {"trace": trace, "heads": heads, "transformers": transformers}


def _silent(done: float, what: str = "") -> None:
    """Nobody is told."""


def _size(z: np.ndarray) -> float:
    """Root-mean-square length of the tokens of a layer: the unit in which clusters are counted."""
    return float(np.sqrt((z.astype(np.float64) ** 2).sum(axis=1).mean())) or 1.0


def _place(m: Any, layer: int, head: int) -> tuple[int, int]:
    if layer >= m.depth or head >= m.width:
        raise ValueError(
            f"layer, head: {m.name} has layers 0 to {m.depth - 1} and heads 0 to {m.width - 1}; "
            f"got {layer} and {head}"
        )
    return layer, head
