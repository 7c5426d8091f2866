"""LIME and SHAP: worth of each word of a review, from probabilities of the review cut down.

A `Probe` takes masks (s, m), which of the m words stay, and returns s probabilities of a label.
LIME (Ribeiro et al. 2016) and SHAP (Lundberg and Lee 2017) are the published packages where they
are installed (pip install "cynosure[compare]"), and otherwise the small samplers here, named so.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any, TypeAlias

import numpy as np

Probe: TypeAlias = Callable[[np.ndarray], np.ndarray]
Sampler: TypeAlias = Callable[[Probe, int, int, int], np.ndarray]  # probe, m, samples, seed


class CountedProbe:
    """A probe that counts how many reviews it was asked about."""

    def __init__(self, probe: Probe) -> None:
        self.probe, self.evaluations = probe, 0

    def __call__(self, masks: np.ndarray) -> np.ndarray:
        self.evaluations += len(masks)
        return self.probe(masks)


def samplers() -> dict[str, Sampler]:
    """LIME and SHAP: the packages where they are installed, else the own ones."""
    out: dict[str, Sampler] = {}
    for name, package, own in (("LIME", lime, own_lime), ("SHAP", shap, own_shap)):
        installed = find_spec(name.lower()) is not None
        out[name if installed else f"{name}, own sampler"] = package if installed else own
    return out


def own_shap(probe: Probe, m: int, samples: int, seed: int) -> np.ndarray:
    """Shapley values by random orders and their reverses: mean change when a word comes in."""
    draw = np.random.default_rng(seed)
    rounds = max(1, samples // (2 * (m + 1)))
    value = np.zeros(m)
    for _ in range(rounds):
        order = draw.permutation(m)
        for path in (order, order[::-1]):
            masks = np.argsort(path) < np.arange(m + 1)[:, None]  # one word more in each row
            value[path] += np.diff(probe(masks))
    return value / (2 * rounds)


def own_lime(probe: Probe, m: int, samples: int, seed: int) -> np.ndarray:
    """Coefficients of a ridge regression on random subsets, near ones weighted more."""
    draw = np.random.default_rng(seed)
    masks = np.ones((samples, m), bool)
    for mask in masks[1:]:
        mask[draw.choice(m, int(draw.integers(1, m + 1)), replace=False)] = False
    distance = 100 * (1 - np.sqrt(masks.mean(axis=1)))  # cosine distance to the whole review
    weight = np.sqrt(np.exp(-(distance**2) / 25**2))
    x, y = masks.astype(float), probe(masks)
    x0, y0 = weight @ x / weight.sum(), weight @ y / weight.sum()
    xw = (x - x0) * weight[:, None]
    return np.linalg.solve(xw.T @ (x - x0) + np.eye(m), xw.T @ (y - y0))


def _imported(name: str) -> Any:
    """The package; what it says about its own dependencies while it loads is not ours to show."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return import_module(name)


def lime(probe: Probe, m: int, samples: int, seed: int) -> np.ndarray:
    """The package's text explainer, on a text of m different words."""

    def classify(texts: list[str]) -> np.ndarray:
        masks = np.zeros((len(texts), m), bool)
        for mask, text in zip(masks, texts):
            mask[[int(word[1:]) for word in text.split()]] = True
        p = probe(masks)
        return np.column_stack((1 - p, p))

    explainer = _imported("lime.lime_text").LimeTextExplainer(
        split_expression=r"\s+", random_state=seed
    )
    text = " ".join(f"w{j}" for j in range(m))
    said = explainer.explain_instance(text, classify, num_features=m, num_samples=samples)
    value = np.zeros(m)
    for word, weight in said.as_list():
        value[int(word[1:])] = weight
    return value


def shap(probe: Probe, m: int, samples: int, seed: int) -> np.ndarray:
    """The package's permutation explainer on presence, nothing present as background."""
    explainer = _imported("shap").PermutationExplainer(
        lambda x: probe(np.asarray(x) > 0.5), np.zeros((1, m)), seed=seed
    )
    most = max(samples, 2 * m + 1)
    return explainer(np.ones((1, m)), max_evals=most, silent=True).values[0]
