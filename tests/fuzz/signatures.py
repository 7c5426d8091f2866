"""`python -m tests.fuzz.signatures`: public functions called from their signatures, by Hypothesis.

Arguments are drawn by the name of the parameter, or from what no parameter expects, as Python
source: what fails is printed as a line to paste. An answer is right here; so is a ValueError or
TypeError that the package raises. All else is a finding, also a message of NumPy or SciPy, which
does not name the argument.
"""

from __future__ import annotations

import argparse
import inspect
import os
import signal
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

os.environ.setdefault("MPLBACKEND", "Agg")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from .outcomes import Case, act, limit

AT_ONCE = 100  # calls in one child
FEW = 2  # findings shown of one place
MODULES = "analysis attention configurations construction datasets dynamics movie plot simulation"
SKIPPED = {  # they download, serve, or are parts of pictures that get what other parts computed
    "load_transformer", "imdb", "dots", "draw_tokens", "edges", "embellish", "globes", "half_space",
    "legend", "legend_below", "means", "new_axes", "plain_log", "save", "shade", "sheet", "widget",
    "cell", "paths", "cap", "marker_size", "open_sweep", "softmax_pull", "softmax_weights", "sides",
    "act", "limits_as", "follow_graph", "attention_set", "get_params", "set_params", "score",
}  # fmt: skip

FITTING = {  # parameter -> values that fit, as source
    "z z0 tokens": ["Z", "Z.tolist()", "Z[:1]", "ones((3, 2))", "zeros((2, 2))", "Z * 1e-300",
                    "Z * 1e200", "stack([Z, Z])", "Z.astype('f4')", "eye(3)", "torch.tensor(Z)"],
    "trajectory run": ["RUN", "FLOW", "SOFT"],
    "trajectories": ["[RUN, RUN, RUN, RUN]", "[RUN]", "[]"],
    "dynamics": ["cy.PureAttention()", "cy.PureAttention(cy.Softmax(2.0))", "cy.SphereFlow()",
                 "cy.dynamics.AttentionFlow()", "cy.dynamics.RescaledFlow()"],
    "attention": ["cy.Hardmax()", "cy.Softmax(1.0)", "cy.attention.Causal(cy.Softmax())"],
    "heads": ["[cy.Hardmax(), cy.Softmax()]", "[]"],
    "values": ["[eye(2), eye(2)]"],
    "A V W Q K M B W1 W2 P covariance": ["eye(2)", "-eye(2)", "zeros((2, 2))", "[[2, 1], [1, 2]]",
                                         "eye(3)", "None", "ones((2, 3))"],
    "alpha": ["0.5", "1", "'1/3'", "Fraction(1, 10)"],
    "layers max_layers k n d tries columns rows side count iterations most_words": ["1", "2", "5"],
    "stepper": ["cy.simulation.RK4(0.1)", "cy.simulation.Adaptive()", "None"],
    "time": ["0.1", "1"], "times": ["[0, 0.1]"], "mask": ["[True] * 6", "None"],
    "targets i leader who": ["0", "[0, 2]"], "seed": ["0", "7"],
    "text": ["'a good film'", "''"], "texts": ["['a good film', 'dull']"],
    "labels": ["['a', 'b']"], "path store folder": ["'made.npz'", "'/dev/null/x'", "'made'"],
    "words": ["list('abcdef')", "None"], "size": ["300"], "fps": ["5"], "tween": ["1"],
    "sequences": ["[[[0, 1]], [[1, 1], [2, 0]]]"], "classes": ["('a', 'b')"],
    "dynamics_list layers_list": ["[cy.PureAttention()]"], "limit": ["LIMIT", "None"],
    "deadline": ["2.0", "None"], "progress": ["None"], "struck": ["['good']", "()"],
    "measure": ["cell"], "grid": ["{'a': [1, 2]}"], "pipeline": ["None"],
    "mean": ["[0.0, 1.0]"], "body": ["HULL"], "polytope": ["HULL"],
}  # fmt: skip
ODD = [  # values that fit nowhere, or nearly
    "Z * 1j", "ma.masked_array(Z, Z > 0)", "Z * nan", "Z * inf", "zeros((0, 2))", "zeros((3, 0))",
    "zeros(())", "Z[None, None]", "Z[0]", "Z.astype(object)", "Z.astype('S')", "Z > 0",
    "Z.astype('f2')", "array('2020', 'M8[Y]')", "array([(1, 2.0)], 'i4,f8')", "ones((2, 20000))",
    "[[1], [2, 3]]", "[[10**400, 1], [1, 2]]", "deep(3000)", "[[None, 1], [1, 2]]", "[['a', 1]]",
    "Z * 1e308", "full((2, 2), 5e-324)", "matrix(Z)", "torch.eye(2, dtype=torch.complex64)",
    "torch.eye(2, requires_grad=True)", "torch.eye(2, dtype=torch.bfloat16)", "memoryview(b'ab')",
    "10**400", "-10**400", "10**19", "0", "-1", "-0.0", "nan", "-inf", "5e-324", "1e308", "True",
    "1 + 2j", "Fraction(1, 3)", "Decimal('0.1')", "Decimal('sNaN')", "float64(2)", "int8(-3)",
    "'x'", "'1/0'", "'9' * 5000", "b'x'", "'\\ud800'", "'\\x00'", "None", "[]", "{}", "set()",
    "{1: 2}", "range(3)", "(x for x in Z)", "object()", "int", "print", "lambda *a: a", "...",
    "NotImplemented", "RUN", "LIMIT", "CLF", "cy.Hardmax()", "cy.Hardmax", "cy.PureAttention()",
    "cy", "Path('made')", "slice(3)", "iter([])", "[RUN]", "[0.5] * 6", "[True]", "10**7", "1.5",
    "datetime(2020, 1, 1)", "float32(0.1)", "Z.dtype", "'0.5'", "['a', None]", "[b'a']",
    "array('a')",
]  # fmt: skip


def deep(times: int) -> list[Any]:
    """A list in a list in a list."""
    inner: list[Any] = [1.0]
    for _ in range(times):
        inner = [inner]
    return inner


def cell(a: Any = 1, seed: int = 0) -> dict[str, Any]:
    """A cell of a sweep."""
    return {"x": float(seed)}


@cache
def names() -> dict[str, Any]:
    """What the source of a call may name."""
    import datetime
    import decimal

    import torch

    import cynosure as cy

    z = np.round(np.random.default_rng(0).normal(size=(6, 2)), 3)
    data = cy.datasets.synthetic(60, classes=("a", "b"))
    run = cy.simulate(cy.PureAttention(), z, layers=3)
    flow = cy.simulate(cy.dynamics.AttentionFlow(), z, times=[0.0, 0.1])
    clf = cy.HardmaxClassifier(max_features=40).fit(data.texts, data.labels)
    return {
        **{name: getattr(np, name) for name in np.__all__ if name not in ("seed", "cell")},
        "cy": cy, "torch": torch, "Z": z, "RUN": run, "FLOW": flow, "CLF": clf,
        "SOFT": cy.simulate(cy.PureAttention(cy.Softmax(3.0)), z, layers=4),
        "LIMIT": cy.limit(cy.PureAttention(), z), "HULL": cy.hull(z), "WHY": clf.explain("good"),
        "ROLES": cy.roles(run), "FOLLOWED": cy.Hardmax().followed(z), "deep": deep, "cell": cell,
        "Fraction": Fraction, "Decimal": decimal.Decimal, "Path": Path, "abs": abs,
        "datetime": datetime.datetime, "int": int, "object": object, "range": range,
    }  # fmt: skip


@cache
def entries() -> dict[str, Callable[..., Any]]:
    """Source -> public function, class of attention, dynamics or stepper, or method of a result."""
    import cynosure as cy
    from cynosure.attention import Attention
    from cynosure.dynamics import Dynamics
    from cynosure.simulation.steppers import Stepper

    found: dict[str, Any] = {}
    for place in ["", *MODULES.split(), "spectra"]:
        owner = getattr(cy, place) if place else cy
        for name in getattr(owner, "__all__", None) or _own(owner):
            one, source = getattr(owner, name), f"cy.{place}.{name}".replace("..", ".")
            kind = (Attention, Dynamics, Stepper, cy.HardmaxClassifier)
            made = inspect.isclass(one) and issubclass(one, kind) and not inspect.isabstract(one)
            if name not in SKIPPED and (inspect.isfunction(one) or made):
                found.setdefault(name, (source, one))
    calls = dict(found.values())
    for name in ("RUN", "LIMIT", "CLF", "WHY", "HULL", "ROLES", "FOLLOWED"):
        one = names()[name]
        for method in dir(one):
            if (
                method[0] != "_"
                and method not in SKIPPED
                and inspect.ismethod(getattr(one, method))
            ):
                calls[f"{name}.{method}"] = getattr(one, method)
    return {source: calls[source] for source in sorted(calls)}


def _own(module: Any) -> list[str]:
    """The public functions of a module that has no list of them."""
    named = vars(module).items()
    return [
        name
        for name, one in named
        if not name.startswith("_") and getattr(one, "__module__", "") == module.__name__
    ]


@cache
def _fitting() -> dict[str, list[str]]:
    return {name: values for several, values in FITTING.items() for name in several.split()}


@st.composite
def calls(draw: st.DrawFn) -> str:
    """The source of one call."""
    source = draw(st.sampled_from(list(entries())))
    given_: list[str] = []
    odd = draw(st.integers(0, 3))  # none, one, one, or any of them
    parameters = [
        p
        for p in inspect.signature(entries()[source]).parameters.values()
        if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    at = draw(st.integers(0, max(len(parameters) - 1, 0)))
    for number, p in enumerate(parameters):
        strange = draw(st.booleans()) if odd == 3 else odd > 0 and number == at
        if not strange and p.default is not p.empty and draw(st.integers(0, 3)):
            continue
        fits = _fitting().get(p.name, ["0.5", "1", "2.0"])
        value = draw(st.sampled_from(ODD if strange else fits))
        given_.append(value if p.kind is p.POSITIONAL_ONLY else f"{p.name}={value}")
    return f"{source}({', '.join(given_)})"


def call(source: str) -> Case:
    def run() -> None:
        import matplotlib.pyplot as plt

        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            answer = eval(source, dict(names()))
            if inspect.isgenerator(answer):
                next(answer, None)
            if not hasattr(answer, "get_params"):  # an estimator shows its arguments, until `fit`
                repr(answer)
            plt.close("all")

    return Case("signature", source, run)


def examples(number: int, count: int, seen: Callable[[str], None]) -> None:
    """`seen` for each of so many calls, which Hypothesis draws."""

    @seed(number)
    @settings(
        max_examples=count, database=None, deadline=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(calls())
    def each(source: str) -> None:
        seen(source)

    each()


def fuzz(number: int, count: int) -> Sequence[tuple[str, str, str]]:
    """Calls in a child, in a folder of its own: source, kind and what was said of each."""
    with tempfile.TemporaryDirectory(prefix="signatures-") as place:
        told = Path(place, "told")
        child = os.fork()
        if child == 0:
            try:
                _child(number, count, told)
            finally:
                os._exit(0)
        _, status = os.waitpid(child, 0)
        lines = [line.split("\t") for line in told.read_text("utf-8").splitlines()]
    ended = [(eval(source), kind, eval(said)) for source, kind, said in lines if kind != "begun"]
    if len(lines) % 2:  # the last one did not end
        kind = "slow" if os.waitstatus_to_exitcode(status) == -signal.SIGPROF else "signal"
        ended.append((eval(lines[-1][0]), kind, ""))
    return ended


def _child(number: int, count: int, told: Path) -> None:
    os.chdir(told.parent)
    limit()
    with told.open("w", encoding="utf-8") as file:

        def seen(source: str) -> None:
            file.write(f"{source!r}\tbegun\t''\n")
            file.flush()
            limit()
            kind, said = act(call(source))
            file.write(f"{source!r}\t{kind}\t{said!r}\n")
            file.flush()

        examples(number, count, seen)


def where(said: str) -> str:
    """The last place of the traceback and the name of the error."""
    lines = [line.strip() for line in said.strip().splitlines() if line.strip()]
    places = [line for line in lines if line.startswith("File ")]
    ours = [line for line in places if "cynosure" in line]
    error = next((x for x in reversed(lines) if ": " in x and not x.startswith("File")), "?")
    return f"{(ours or places or ['?'])[-1][-90:]} | {error[:110]}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.signatures", description=__doc__)
    parser.add_argument("--count", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", help="one call, as it was printed")
    args = parser.parse_args()
    if args.only:
        kind, said = act(call(args.only))
        print(f"{kind}\n{said}")
        return int(kind not in ("ok", "refused"))
    entries()
    counts: Counter[str] = Counter()
    places: Counter[str] = Counter()
    number = args.seed * 1_000_003
    while counts.total() < args.count:
        number += 1
        for source, kind, said in fuzz(number, min(AT_ONCE, args.count - counts.total())):
            counts[kind] += 1
            if kind in ("ok", "refused"):
                continue
            place = where(said) if said else kind
            places[place] += 1
            if places[place] <= FEW:
                print(f"{kind}: {source}\n    {place}", flush=True)
    print(f"{counts.total()} calls of {len(entries())} functions: {dict(counts)}")
    for place, times in places.most_common():
        print(f"{times:6} {place}")
    return int(bool(places))


if __name__ == "__main__":
    sys.exit(main())
