"""Command lines and calls that work, with words and arguments changed."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import numpy as np

from .mutations import NUMBERS, WEIRD, bent
from .outcomes import Case
from .saved import SPEC, once, small_classifier, small_model

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
    "predict MODEL TEXTS --jsonl",
    "predict TEXTS --model MODEL --out OUT --rows 2",
    "explain MODEL good --label b --json",
    "explain MODEL good --html OUT.html",
    "explain MODEL --file TEXTS",
    "fit LABELLED --out OUT --min-df 1 --words 3 --leaders 2 --ngrams 1-2",
    "evaluate MODEL LABELLED --explained 3",
    "card MODEL --data LABELLED --html OUT.html",
    "control FILE --leaders 0,2 --out OUT.csv",
    "control FILE --remove 1 --A MATRIX --json",
    "sweep SPEC --store OUT.zarr",
    "explain good",
    "info --json",
    "--config CONFIG limit FILE",
]


def mutated_command(draw: random.Random, folder: Path) -> Case:
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
    return command([_filled(word, folder) for word in words], "command")


def _filled(word: str, folder: Path) -> str:
    if word == "MODEL":
        return str(small_model(folder))
    if any(name in word for name in ("FILE", "MATRIX", "TEXTS", "CONFIG", "RUN", "SPEC", "LABEL")):
        (folder / "spec.toml").write_text(SPEC)
        (folder / "labelled.csv").write_text("text,label\na good film,a\ndull,b\nfine,a\nbad,b\n")
        (folder / "file.csv").write_text("1,0\n0,1\n-1,0.5\n0.25,0.25\n")
        (folder / "matrix.csv").write_text("2,0.5\n0.5,1\n")
        (folder / "texts.txt").write_text("a good film\n\ndull\n")
        (folder / "config.toml").write_text('[limit]\nalpha = "1/2"\nmax-layers = 50\n')
    for name, file in (
        ("FILE", "file.csv"), ("MATRIX", "matrix.csv"), ("TEXTS", "texts.txt"),
        ("CONFIG", "config.toml"), ("RUN", "run.npz"), ("OUT", "out"), ("SPEC", "spec.toml"),
        ("LABELLED", "labelled.csv"),
    ):  # fmt: skip
        word = word.replace(name, str(folder / file))
    return word


# --- calls ---------------------------------------------------------------------------------------

CALLS = {
    "simulate": "cy.simulate(cy.PureAttention(alpha=a), z, layers=k)",
    "softmax": "cy.simulate(cy.PureAttention(cy.Softmax(a)), z, layers=k)",
    "flow": "cy.simulate(cy.dynamics.AttentionFlow(), z, time=a, stepper=cy.simulation.RK4(b))",
    "adaptive": "cy.simulate(cy.dynamics.RescaledFlow(), z, time=a)",
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
    "sinkhorn": "cy.simulate(cy.PureAttention(cy.attention.Sinkhorn(a)), z, layers=k)",
    "localmax": "cy.simulate(cy.PureAttention(cy.attention.Localmax(a)), z, layers=k)",
    "causal": (
        "cy.simulate(cy.PureAttention(cy.attention.Causal(cy.Softmax()), alpha=a), z, layers=k)"
    ),
    "noisy": "cy.simulate(cy.dynamics.NoisySphere(sigma=a), z, layers=k)",
    "euclidean": "cy.simulate(cy.dynamics.EuclideanFlow(), z, time=a, deadline=5)",
    "control": "cy.control(z, k)",
    "removal": "cy.analysis.remove_leader(z, k)",
    "recognise": "cy.recognise(cy.simulate(cy.dynamics.RescaledFlow(), z, time=1.0, deadline=5))",
    "forward": "cy.simulate(cy.dynamics.FeedForward(z, b), z, layers=k)",
    "form": "cy.limit(cy.PureAttention(cy.Hardmax(z[:2]), alpha=a), z, deadline=5)",
    "masked": "cy.simulate(cy.PureAttention(), z, layers=k, mask=[True, False, a, b, True])",
    "times": "cy.simulate(cy.dynamics.AttentionFlow(), z, times=[0, a], "
    "stepper=cy.simulation.Euler(b))",
    "words": "clf.explain(a)",
    "label": "clf.explain('a good film', a)",
    "predict": "clf.predict([a, b, 'good'])",
    "evaluate": "cy.evaluate(clf, t, y, explained=k)",
    "construct": "cy.construction.construct_classifier([z, z[:2], z[::-1]], [a, b, a]).predict(z)",
    "choose": "cy.control_exactly(z, [0, k], tries=1)",
    "reach": "cy.control_limit(z, k, alpha=a, tries=1)",
    "gaussian": "cy.analysis.GaussianFlow(a, z, V=b)",
    "rotary": "cy.simulate(cy.PureAttention(cy.attention.Rotary(base=a)), z, layers=k)",
    "heads": (
        "cy.simulate(cy.PureAttention(cy.attention.Heads([cy.Hardmax(), cy.Softmax(a)])),"
        " z, layers=k)"
    ),
    "jump": "cy.simulate(cy.dynamics.JumpChain(g=a, seed=k), z, layers=3)",
    "values": "cy.simulate(cy.dynamics.ValueAttention(V=z[:2]), z, layers=k)",
    "report": "cy.report(cy.simulate(cy.PureAttention(alpha=a), z, layers=3)).to_json()",
    "select": "cy.simulate(cy.PureAttention(), z, layers=1).select(k)",
}


def mutated_call(draw: random.Random, folder: Path) -> Case:
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
    if "clf" in CALLS[name]:
        given["clf"] = once(small_classifier)
    used = {k: v for k, v in given.items() if re.search(rf"\b{k}\b(?!=)", CALLS[name])}
    lines = [f"{k} = {v!r}" for k, v in used.items() if k != "clf"]
    lines += ["from tests.fuzz.saved import small_classifier; clf = small_classifier()"] * (
        "clf" in used
    )
    code = "\n".join(["import cynosure as cy; from numpy import *", *lines, CALLS[name]])

    def act() -> None:
        import warnings

        import cynosure as cy

        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            eval(CALLS[name], {"cy": cy, **given})

    return Case(f"call {name}", code, act)


def command(words: list[str], family: str) -> Case:
    def act() -> int:
        from cynosure.cli import main

        return main(words)

    return Case(family, f"cynosure.cli.main({words!r})", act)
