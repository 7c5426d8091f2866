"""`python -m tests.attack`: the long run, or one case again with --replay SEED:INDEX."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path

from .starts import case
from .workers import LONGEST, Result, attack, examine

OUTCOMES = ("right", "undecided", "wrong", "crashed", "slow")


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
    indices: list[int] = list(range(args.first, args.first + args.count))
    if args.kind or args.mode:
        indices = [i for i in indices if _asked(case(args.seed, i), args.kind, args.mode)]
    return run(args.seed, indices, args.workers, args.out, args.longest)


def _asked(made, kind: str | None, mode: str | None) -> bool:
    return kind in (None, made.kind) and mode in (None, made.mode)


def replay(seed: int, index: int) -> int:
    """One case in this process, printed as Python."""
    print(describe(seed, index), flush=True)
    result = examine(seed, index)
    print(f"# {result.outcome} after {result.seconds:.2f} s")
    for fault in result.faults:
        print(f"#   {fault}")
    return int(result.outcome in OUTCOMES[2:])


def describe(seed: int, index: int) -> str:
    made = case(seed, index)
    return f"# {made.name}: {made.kind}, {made.mode}\n{made.code()}"


def run(seed: int, indices: list[int], workers: int, out: Path, longest: float) -> int:
    """All cases; a line for every failure as it comes, a table at the end, everything in JSON."""
    begin, results = time.monotonic(), []
    for done, result in enumerate(attack(seed, indices, workers, longest), start=1):
        results.append(result)
        if result.outcome in OUTCOMES[2:]:
            print(f"{seed}:{result.index} {result.kind}, {result.mode}: {result.outcome}:", end=" ")
            print("; ".join(result.faults[:2])[:300], flush=True)
        if done % 5000 == 0:
            counts = Counter(r.outcome for r in results)
            print(f"... {done} of {len(indices)}, {dict(counts)}, {time.monotonic() - begin:.0f} s")
            sys.stdout.flush()
    counts = Counter(r.outcome for r in results)
    print(table(results))
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(
        json.dumps(report(seed, results, longest, time.monotonic() - begin), indent=1), "utf-8"
    )
    print(f"{len(results)} cases in {time.monotonic() - begin:.0f} s, written to {out}")
    return int(any(counts[o] for o in OUTCOMES[2:]))


def table(results: list[Result]) -> str:
    """Kinds of start by outcome."""
    kinds = sorted({r.kind for r in results})
    counts = Counter((r.kind, r.outcome) for r in results)
    total = Counter(r.outcome for r in results)
    lines = [f"{'':20}" + "".join(f"{o:>11}" for o in OUTCOMES) + f"{'s':>9}"]
    for kind in kinds:
        seconds = sum(r.seconds for r in results if r.kind == kind)
        cells = "".join(f"{counts[kind, o]:>11}" for o in OUTCOMES)
        lines.append(f"{kind:20}{cells}{seconds:>9.1f}")
    lines.append(f"{'all':20}" + "".join(f"{total[o]:>11}" for o in OUTCOMES))
    return "\n".join(lines)


def report(seed: int, results: list[Result], longest: float, seconds: float) -> dict[str, object]:
    counts = Counter(r.outcome for r in results)
    bad = [r for r in results if r.outcome != "right"]
    return {
        "seed": seed,
        "cases": len(results),
        "seconds": round(seconds, 1),
        "longest allowed": longest,
        "outcomes": {o: counts[o] for o in OUTCOMES},
        "kinds": {
            kind: {o: sum(r.outcome == o for r in results if r.kind == kind) for o in OUTCOMES}
            for kind in sorted({r.kind for r in results})
        },
        "not right": [
            {**asdict(r), "replay": f"{seed}:{r.index}"}
            | ({} if r.outcome == "undecided" else {"code": describe(seed, r.index)})
            for r in sorted(bad, key=lambda r: r.index)
        ],
    }


if __name__ == "__main__":
    raise SystemExit(main())
