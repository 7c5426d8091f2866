"""A fitted classifier for other languages: one JSON file, read by `reader.js` and `reader.sql`.

`write_json` writes what a verdict takes and nothing else: the terms, each with the number of its
ray and its radius, the rays with their level and weight, and the numbers of the decoder. The
two readers beside this file compute from it what `HardmaxClassifier.decision_function` does.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from ..._files import write_atomically
from ..explaining.loaded_model import LoadedModel
from ..model.plane import Plane
from ..text.vocabulary import REACH

__all__ = ["write_json"]


def write_json(clf: Any, path: str | os.PathLike[str]) -> Path:
    """Write a classifier fitted by `Placed` (a HardmaxClassifier or a LoadedModel) as one file."""
    opened: LoadedModel = clf if isinstance(clf, LoadedModel) else clf._opened
    model, vocabulary = opened.model, opened.vocabulary
    left = (1.0 / (1.0 + float(model.alpha))) ** model.layers
    tokenizer = vocabulary.tokenizer
    if tokenizer.own is not None:
        raise ValueError("tokenizer: the readers have the package's own rules, not your function")
    header = {
        "format": "cynosure-reader", "version": 2, "classes": opened.classes_.tolist(),
        "shared": opened.shared, "together": model.planes[0].together is not None,
        "tokenizer": {
            "ngrams": list(tokenizer.ngrams), "lowercase": tokenizer.lowercase,
            "reach": REACH if tokenizer.negation else 0,
            "negators": tokenizer.negator_forms if tokenizer.negation else [],
        },
        "terms": list(vocabulary.terms), "planes": [_plane(plane, left) for plane in model.planes],
    }  # fmt: skip
    text = json.dumps(header, ensure_ascii=False, allow_nan=False)
    return write_atomically(Path(path), lambda stream: stream.write(text.encode()))


def _plane(plane: Plane, left: float) -> dict[str, Any]:
    rays = plane.rays
    if rays is None or not rays.apart or len(plane.v) != 1 or float(plane.anchor @ plane.v[0]):
        raise ValueError("only classifiers fitted by Placed can be exported; this one was learned")
    ladder = plane.ladder
    return {
        "intercept": float(plane.b[0]), "prior": float(plane.prior[0]), "count": float(plane.count),
        "kappa": float(plane.kappa) if plane.kappa < float("inf") else None, "left": left,
        "neutral": rays.anchor_ray, "score": (rays.direction @ plane.v[0]).tolist(),
        "level": ladder.level.tolist(), "value": ladder.value.tolist(), "ray": rays.ray.tolist(),
        "radius": rays.radius.tolist(),
    }  # fmt: skip
