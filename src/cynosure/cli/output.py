"""What a command shows: tables and JSON on stdout, status and progress on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from .. import __version__
from .inputs import Inputs, listed

if TYPE_CHECKING:
    import numpy as np

    from ..analysis.limits import Limit
    from ..analysis.spectra import LimitingObject
    from ..drawing.report import Table
    from ..simulation.trajectory import Trajectory
    from ..theorems import Check

__all__ = [
    "Voice",
    "check_detail",
    "check_table",
    "document",
    "limit_data",
    "limit_sentence",
    "limit_table",
    "print_table",
    "recognised",
    "rows_shown",
    "rule_codes",
    "rules_in_words",
    "trajectory_data",
    "trajectory_table",
    "write_text",
]

ROWS_ON_SCREEN = 40  # a terminal gets the first tokens; a pipe or a file gets them all


@final
@dataclass(frozen=True)
class Voice:
    """What a run may say on stderr."""

    quiet: bool = False
    verbose: bool = False
    command: str = "cynosure"  # as typed, for the record in outputs

    def note(self, text: str) -> None:
        if not self.quiet:
            print(text, file=sys.stderr)

    def detail(self, text: str) -> None:
        if self.verbose and not self.quiet:
            print(text, file=sys.stderr)

    def status(self, tr: Trajectory) -> None:
        self.note(f"{tr.status.code}: {tr.status.message} {tr.status.advice}".rstrip())
        for text in tr.status.notes:
            self.note(f"note: {text}")

    @contextmanager
    def bar(self, total: float | None, unit: str) -> Iterator[Callable[..., None] | None]:
        """A progress bar on a terminal, nothing elsewhere; call it with (done, what)."""
        if self.quiet or not sys.stderr.isatty():
            yield None
            return
        from tqdm import tqdm

        with tqdm(total=total, unit=unit, leave=False, file=sys.stderr) as progress:

            def move(done: float, what: object = "") -> None:
                progress.set_postfix_str(str(what), refresh=False)
                progress.update(done - progress.n)

            yield move


def document(voice: Voice, inputs: Inputs, result: dict[str, Any]) -> str:
    """One JSON document: what made it, from which numbers, and the result."""
    head = {"version": __version__, "command": voice.command, "inputs": inputs.describe()}
    return json.dumps(head | {"result": result}, allow_nan=False, ensure_ascii=False)


def rows_shown(z: np.ndarray) -> int:
    return min(len(z), ROWS_ON_SCREEN) if sys.stdout.isatty() else len(z)


def print_table(table: Table, total: int) -> None:
    print(table.to_text())
    if len(table.rows) < total:
        print(f"... {total - len(table.rows)} more (pipe the output or use --json for all)")


def write_text(path: Path, text: str) -> None:
    """The file, whole or not at all."""
    from .._files import write_atomically

    write_atomically(path, lambda stream: stream.write(text.encode()))


def _layer(k: int) -> int | None:
    return int(k) if k >= 0 else None


def recognised(tr: Trajectory) -> LimitingObject | None:
    """What a run tends to; None for hardmax layers, whose limits `cynosure limit` proves."""
    from ..analysis.leaders import can_lead
    from ..analysis.spectra import recognise

    return None if can_lead(tr) else recognise(tr)


def trajectory_table(tr: Trajectory, end: LimitingObject | None, rows: int) -> Table:
    """The last state, with roles in hardmax layers and clusters elsewhere."""
    from ..analysis.leaders import roles
    from ..drawing.report import Table

    z = tr.values[-1]
    coordinates = [f"z{j}" for j in range(z.shape[1])]
    if end is not None:
        cells = tuple((i, int(end.labels[i]), *z[i].tolist()) for i in range(rows))
        return Table("", ("token", "cluster", *coordinates), cells)
    ro, last = roles(tr), int(tr.t[-1])
    followed = ro.followed(last)
    target, size = followed.target, followed.size
    settled = tr.history.settled_at if tr.history is not None else [-1] * len(z)

    def whom(i: int) -> str:
        return str(target[i]) if size[i] == 1 else ", ".join(map(str, followed[i][:8]))

    return Table(
        "",
        ("token", "leads since", "follows", "settled at", *coordinates),
        tuple(
            (i, _layer(ro.born[i]), whom(i), _layer(settled[i]), *z[i].tolist())
            for i in range(rows)
        ),
    )


def trajectory_data(tr: Trajectory, end: LimitingObject | None) -> dict[str, Any]:
    from ..analysis.leaders import roles
    from ..drawing.report import jsonable

    alpha = getattr(tr.dynamics, "exact_alpha", None)
    data: dict[str, Any] = {
        "dynamics": type(tr.dynamics).__name__,
        "alpha": None if alpha is None else str(alpha),
        "status": jsonable(tr.status),
        "z": jsonable(tr.values[-1]),
    }
    if tr.stepper is None:
        data["layer"] = int(tr.t[-1])
    else:
        data |= {"time": float(tr.t[-1]), "stepper": str(tr.stepper)}
    if end is not None:
        return data | {"limit": jsonable(end.to_dict()) | {"text": str(end)}}
    born = roles(tr).born
    return data | {
        "leaders": jsonable((born >= 0).nonzero()[0]),
        "born": jsonable(born),
        "settled_at": None if tr.history is None else jsonable(tr.history.settled_at),
    }


def rule_codes(li: Limit) -> list[str]:
    """The rule of each token as files have it: leader, S, G, fixed, H, T or undecided."""
    return [str(rule) or "undecided" for rule in li.rule]


def rules_in_words(li: Limit) -> list[str]:
    """The same for people: "follows a leader" instead of S."""
    from ..engine.certificates import RULE_WORDS

    return [RULE_WORDS[str(rule)] for rule in li.rule]


def limit_table(li: Limit, rows: int, rules: Sequence[str]) -> Table:
    """The first `rows` tokens, each with its rule as `rules` say it."""
    from ..drawing.report import Table

    points: Sequence = li.points.tolist() if li.exact_points is None else li.exact_points
    return Table(
        "",
        (
            "token", "rule", "settled at", "leads since", "tends to", "smallest gap",
            *(f"limit{j}" for j in range(li.points.shape[1])),
        ),
        tuple(
            (
                i, rules[i], _layer(li.settled_at[i]), _layer(li.born[i]),
                _layer(li.follows[i]), float(li.margin[i]), *points[i],
            )
            for i in range(rows)
        ),
    )  # fmt: skip


def limit_data(li: Limit, alpha: str) -> dict[str, Any]:
    from ..drawing.report import jsonable

    names = (
        "certified undecided leaders born settled_at rule follows margin layers arithmetic "
        "exact_decisions points exact_points"
    ).split()
    data = {name: jsonable(getattr(li, name)) for name in names}
    return {"alpha": alpha} | data | {"rule_in_words": rules_in_words(li)}


def limit_sentence(li: Limit) -> str:
    n, d = li.points.shape
    text = (
        f"{n - len(li.undecided)} of {n} limits proved (d = {d}), {len(li.leaders)} leaders, "
        f"layer {li.layers}, arithmetic: {li.arithmetic}."
    )
    if li.certified:
        return text
    more = " ..." if len(li.undecided) > 10 else ""
    return (
        f"{text}\nundecided: {listed(li.undecided[:10])}{more}; their rows hold the last "
        "layer computed. Raise --max-layers; if A is not symmetric positive definite there may be "
        "no limit."
    )


def check_table(checks: Sequence[Check]) -> Table:
    from ..drawing.report import Table

    def verdict(c: Check) -> str:
        return "does not apply" if not c.applies else "holds" if c.holds else "FAILS"

    def statement(c: Check) -> str:
        missing = [h.name.partition(" (")[0] for h in c.hypotheses if not h.holds]
        return c.statement + (f" [fails: {listed(missing)}]" if missing else "")

    rows = tuple(
        (c.theorem, verdict(c), c.margin if c.applies else None, statement(c)) for c in checks
    )
    return Table("", ("", "verdict", "margin", "statement"), rows)


def check_detail(c: Check) -> str:
    from ..drawing.report import jsonable

    facts = "; ".join(
        f"{h.name}: {'yes' if h.holds else 'NO'}, {h.value:.3g}" for h in c.hypotheses
    )
    witness = json.dumps(jsonable(c.witness), ensure_ascii=False)
    outcome = f"; {c.arithmetic}, witness {witness}" if c.applies else ""
    return f"{c.theorem} ({c.reference}) {facts}{outcome}"
