"""`python -m tests.attack`: the long run, or one case again with --replay SEED:INDEX."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from .cases import Case, case
from .workers import LONGEST, Result, attack, examine

OUTCOMES = ("right", "undecided", "wrong", "crashed", "slow")
FAILURES = OUTCOMES[2:]
SAVE_EVERY = 500


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.attack", description=__doc__)
    parser.add_argument("--count", type=int, default=1000, help="how many cases")
    parser.add_argument("--first", type=int, default=0, help="the number of the first")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--kind", help="only cases of this kind of start")
    parser.add_argument("--mode", help="only cases of this mode")
    parser.add_argument("--out", type=Path, default=Path("build/attack.json"))
    parser.add_argument("--longest", type=float, default=LONGEST, help="seconds for a case")
    parser.add_argument("--replay", metavar="SEED:INDEX", help="run one case here and print it")
    args = parser.parse_args()
    if args.replay:
        return replay(*map(int, args.replay.split(":")))
    cases = (
        made
        for made in (case(args.seed, i) for i in range(args.first, args.first + args.count))
        if args.kind in (None, made.kind) and args.mode in (None, made.mode)
    )
    return run(cases, args.workers, args.out, args.longest)


def replay(seed: int, index: int) -> int:
    """One case in this process, printed as Python."""
    print(case(seed, index).code(), flush=True)  # before the call, which may not come back
    result = examine(case(seed, index))
    print(f"# {result.outcome} after {result.seconds:.2f} s")
    for fault in result.faults:
        print(f"#   {fault}")
    return int(result.outcome in FAILURES)


def run(cases: Iterable[Case], workers: int, out: Path, longest: float) -> int:
    """All cases; a line for every failure as it comes, a table at the end.

    Everything is in the JSON, which is written anew as the run goes on: one that is stopped loses
    little, and `--first` goes on from its "next".
    """
    begin, results = time.monotonic(), []
    for result in attack(cases, workers, longest):
        results.append(result)
        if result.outcome in FAILURES:
            print(line(result), flush=True)
        if len(results) % SAVE_EVERY == 0:
            save(out, report(results, longest, time.monotonic() - begin))
        if len(results) % 5000 == 0:
            counts = Counter(r.outcome for r in results)
            print(
                f"{len(results)} cases, {dict(counts)}, {time.monotonic() - begin:.0f} s",
                flush=True,
            )
    seconds = time.monotonic() - begin
    print(table(results))
    save(out, report(results, longest, seconds))
    print(f"{len(results)} cases in {seconds:.0f} s, written to {out}")
    return int(any(r.outcome in FAILURES for r in results))


def save(out: Path, content: dict[str, object]) -> None:
    """Old or new, never half of it."""
    out.parent.mkdir(parents=True, exist_ok=True)
    part = out.with_name(out.name + ".part")
    part.write_text(json.dumps(content, indent=1), "utf-8")
    part.replace(out)


def line(result: Result) -> str:
    """A failure in one line, with what replays it."""
    made = result.case
    why = "; ".join(result.faults[:2])[:300]
    return f"{made.name} {made.kind}, {made.mode}: {result.outcome}: {why}"


def table(results: list[Result]) -> str:
    """Kinds of start by outcome, and the processor time they took."""
    counts = Counter((r.case.kind, r.outcome) for r in results)
    total = Counter(r.outcome for r in results)
    lines = [f"{'':20}" + "".join(f"{o:>11}" for o in OUTCOMES) + f"{'s':>9}"]
    for kind in sorted({r.case.kind for r in results}):
        seconds = sum(r.seconds for r in results if r.case.kind == kind)
        cells = "".join(f"{counts[kind, o]:>11}" for o in OUTCOMES)
        lines.append(f"{kind:20}{cells}{seconds:>9.1f}")
    lines.append(f"{'all':20}" + "".join(f"{total[o]:>11}" for o in OUTCOMES))
    return "\n".join(lines)


def _next(results: list[Result]) -> int:
    """The number from which no case is done; one below it may still have been running."""
    return max((r.case.index for r in results), default=-1) + 1


def report(results: list[Result], longest: float, seconds: float) -> dict[str, object]:
    counts = Counter(r.outcome for r in results)
    kinds = Counter((r.case.kind, r.outcome) for r in results)
    modes = Counter((r.case.mode, r.outcome) for r in results)
    return {
        "cases": len(results),
        "next": _next(results),
        "seconds": round(seconds, 1),
        "longest allowed": longest,
        "outcomes": {o: counts[o] for o in OUTCOMES},
        "kinds": {k: {o: kinds[k, o] for o in OUTCOMES} for k in sorted({k for k, _ in kinds})},
        "modes": {m: {o: modes[m, o] for o in OUTCOMES} for m in sorted({m for m, _ in modes})},
        "open": {r.case.name: r.open for r in results if r.outcome == "undecided"},
        "failures": [
            {
                "replay": r.case.name,
                "kind": r.case.kind,
                "mode": r.case.mode,
                "outcome": r.outcome,
                "faults": r.faults,
                "code": r.case.code(),
            }
            for r in sorted(results, key=lambda r: r.case.index)
            if r.outcome in FAILURES
        ],
    }


if __name__ == "__main__":
    raise SystemExit(main())
