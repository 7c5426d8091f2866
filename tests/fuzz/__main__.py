"""`python -m tests.fuzz`: many cases, a table of outcomes, the bad ones with code to paste."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "src"))
os.environ.setdefault("MPLBACKEND", "Agg")
os.environ.setdefault("OMP_NUM_THREADS", "1")

from .families import FAMILIES, case  # noqa: E402
from .outcomes import GOOD, OUTCOMES, Case, Outcome, outcome, together  # noqa: E402

AT_ONCE = 25  # cases in one child
FEW = 3  # findings shown of one kind and place


def fuzz(
    seed: int, numbers: Sequence[int], families: Sequence[str] = ()
) -> Iterator[tuple[int, Case, Outcome]]:
    """Each case by number, and how it ended; its files are removed, the same come again."""
    warm()
    for start in range(0, len(numbers), AT_ONCE):
        some = numbers[start : start + AT_ONCE]
        with tempfile.TemporaryDirectory(prefix=f"case{some[0]}-") as place:
            cases = [case(seed, number, _folder(place, number), families) for number in some]
            ended = together(cases)
        for number, one, told in zip(some, cases, ended, strict=True):
            if told is None:  # it, or one before it, did not end: once more by itself
                with tempfile.TemporaryDirectory(prefix=f"case{number}-") as place:
                    told = outcome(case(seed, number, Path(place), families))
            yield number, one, told


def _folder(place: str, number: int) -> Path:
    folder = Path(place, str(number))
    folder.mkdir()
    return folder


def warm() -> None:
    """Compile and import here what every child needs."""
    import numpy as np

    import cynosure as cy
    from cynosure.cli import main  # noqa: F401

    z = np.random.default_rng(0).normal(size=(6, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cy.check(cy.simulate(cy.PureAttention(), z, layers=3))
        cy.limit(cy.PureAttention(), z)
        cy.limit(cy.PureAttention(), z, exact=True)
        cy.simulate(cy.PureAttention(cy.Softmax(1.0)), z, layers=2)
        cy.load_pretrained().explain("a good film")
        data = cy.datasets.synthetic(20)
        cy.HardmaxClassifier(min_df=1).fit(data.texts, data.labels).predict(["good"])


def place_of(told: Outcome) -> str:
    """Where it happened: the last line of a traceback and the one before, else its kind."""
    lines = [line.strip() for line in told.said.strip().splitlines() if line.strip()]
    where = [line for line in lines if line.startswith("File ")]
    return f"{told.kind}: {(where or ['?'])[-1]} {(lines or ['?'])[-1][:100]}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0, help="the number of the first")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="this case alone, with what it said")
    parser.add_argument("--families", default="", help=f"some of {','.join(FAMILIES)}")
    given = parser.parse_args()
    families = [name for name in given.families.split(",") if name]
    numbers = range(given.first, given.first + given.count)
    if given.only is not None:
        numbers = range(given.only, given.only + 1)
    count: Counter[str] = Counter()
    by_family: Counter[tuple[str, str]] = Counter()
    shown: Counter[str] = Counter()
    for number, one, told in fuzz(given.seed, numbers, families):
        count[told.kind] += 1
        if sum(count.values()) % 5000 == 0:
            print(" ".join(f"{kind} {count[kind]}" for kind in OUTCOMES), flush=True)
        by_family[one.family.split()[0], told.kind] += 1
        if told.kind in GOOD and given.only is None:
            continue
        where = place_of(told)
        shown[where] += 1
        if shown[where] <= FEW:
            took = f"{told.seconds:.1f} s, {told.megabytes:.0f} MB"
            print(f"# case {number} ({one.family}), {took}\n# {where}\n{one.code}\n", flush=True)
        if given.only is not None:
            print(told.said)
    for (family, kind), times in sorted(by_family.items()):
        print(f"  {family:<10} {kind:<10} {times}")
    total = sum(count.values())
    print(" ".join(f"{kind} {count[kind]}" for kind in OUTCOMES), "of", total)
    return 0 if sum(count[kind] for kind in GOOD) == total else 1


if __name__ == "__main__":
    sys.exit(main())
