"""`python -m tests.fuzz`: many cases, a table of outcomes, the bad ones with code to paste."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "src"))
os.environ.setdefault("MPLBACKEND", "Agg")
os.environ.setdefault("OMP_NUM_THREADS", "1")

from .families import FAMILIES, case  # noqa: E402
from .outcomes import GOOD, OUTCOMES, Case, Outcome, outcome, together  # noqa: E402
from .saved import model_files, once, saved_runs, swept  # noqa: E402

AT_ONCE = 25  # cases in one child
FEW = 3  # findings shown of one kind and place
OFTEN = 60.0  # seconds between two words on how far it is


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
    import functools

    import matplotlib.pyplot  # noqa: F401
    import numpy as np
    import pyarrow.parquet  # noqa: F401
    import torch  # noqa: F401
    import typer.main

    import cynosure as cy
    from cynosure.cli import main

    typer.main.get_command = functools.cache(typer.main.get_command)  # 25 ms of each command line
    z = np.random.default_rng(0).normal(size=(6, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cy.check(cy.simulate(cy.PureAttention(), z, layers=3))
        cy.limit(cy.PureAttention(), z)
        cy.limit(cy.PureAttention(), z, exact=True)
        cy.simulate(cy.PureAttention(cy.Softmax(1.0)), z, layers=2)
        cy.load_pretrained().explain("a good film")
        for made in (model_files, saved_runs, swept):
            once(made)
        with contextlib.redirect_stdout(io.StringIO()):
            main(["limit", "golden:G1", "-q"])


def place_of(told: Outcome) -> str:
    """Where it happened: the last line of a traceback and the one before, else its kind."""
    lines = [line.strip() for line in told.said.strip().splitlines() if line.strip()]
    where = [line for line in lines if line.startswith("File ")]
    return f"{told.kind}: {(where or ['?'])[-1]} {(lines or ['?'])[-1][:100]}"


@dataclass
class Tally:
    """What came out so far, for the screen and for a file; `next` is where to go on."""

    seed: int
    first: int
    next: int
    outcomes: Counter[str] = field(default_factory=Counter)
    families: Counter[tuple[str, str]] = field(default_factory=Counter)
    places: Counter[str] = field(default_factory=Counter)
    findings: list[dict[str, object]] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, number: int, one: Case, told: Outcome) -> None:
        """Count it; print it where it is a finding, and the first ones of its place."""
        self.next = number + 1
        self.seconds += told.seconds
        self.outcomes[told.kind] += 1
        self.families[one.family.split()[0], told.kind] += 1
        if told.kind in GOOD:
            return
        where = place_of(told)
        self.places[where] += 1
        if self.places[where] > FEW:
            return
        took = f"{told.seconds:.1f} s, {told.megabytes:.0f} MB"
        print(f"# case {number} ({one.family}), {took}\n# {where}\n{one.code}\n", flush=True)
        found = {"case": number, "family": one.family, "where": where, "code": one.code}
        self.findings.append({**found, **told._asdict()})

    def __str__(self) -> str:
        said = " ".join(f"{kind} {self.outcomes[kind]}" for kind in OUTCOMES)
        return f"{said} of {self.outcomes.total()}"

    def write(self, path: Path) -> None:
        kinds = {family: {} for family, _ in sorted(self.families)}  # type: dict[str, dict[str, int]]
        for (family, kind), times in sorted(self.families.items()):
            kinds[family][kind] = times
        tree = {
            "seed": self.seed,
            "first": self.first,
            "next": self.next,
            "cases": self.outcomes.total(),
            "seconds": round(self.seconds, 1),
            "outcomes": {kind: self.outcomes[kind] for kind in OUTCOMES},
            "families": kinds,
            "places": dict(self.places),
            "findings": self.findings,
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(tree, indent=1), "utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0, help="the number of the first")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="this case alone, with what it said")
    parser.add_argument("--families", default="", help=f"some of {','.join(FAMILIES)}")
    parser.add_argument("--out", type=Path, default=Path("build/fuzz.json"))
    given = parser.parse_args()
    families = [name for name in given.families.split(",") if name]
    if given.only is not None:
        ((_, one, told),) = fuzz(given.seed, [given.only], families)
        print(f"# {one.family}: {place_of(told)}\n{one.code}\n{told.said}")
        print(f"# {told.kind} after {told.seconds:.1f} s, {told.megabytes:.0f} MB")
        return int(told.kind not in GOOD)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    tally = Tally(given.seed, given.first, given.first)
    shown = time.monotonic()
    try:
        for number, one, told in fuzz(
            given.seed, range(given.first, given.first + given.count), families
        ):
            tally.add(number, one, told)
            if time.monotonic() > shown + OFTEN:
                shown = time.monotonic()
                print(f"{tally}, {tally.seconds:.0f} s of CPU", flush=True)
                tally.write(given.out)
    except KeyboardInterrupt:
        left = given.first + given.count - tally.next
        print(f"stopped: go on with --seed {given.seed} --first {tally.next} --count {left}")
    tally.write(given.out)
    for (family, kind), times in sorted(tally.families.items()):
        print(f"  {family:<10} {kind:<10} {times}")
    print(f"{tally}, written to {given.out}")
    return int(tally.outcomes.total() != given.count or bool(tally.places))


if __name__ == "__main__":
    sys.exit(main())
