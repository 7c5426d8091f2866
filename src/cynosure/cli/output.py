"""What a command shows: tables and JSON on stdout, status and progress on stderr."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from .. import __version__
from .environment import kernels_are_compiled
from .inputs import Inputs, listed
from .terminal import plain, show

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
    "check_text",
    "document",
    "limit_data",
    "limit_sentence",
    "limit_table",
    "long_rationals",
    "print_table",
    "recognised",
    "rows_shown",
    "rule_codes",
    "rules_in_words",
    "trajectory_data",
    "trajectory_table",
    "write_text",
]

PATIENCE = 0.7  # seconds of silence before a line says what is going on
LONGEST_RATIONAL = 24  # characters of a rational that a table shows digit by digit
WIDTH = 80  # columns of prose
SHORT = {  # columns of a file -> of a screen
    "settled at": "settled", "leads since": "leads", "tends to": "to", "smallest gap": "gap",
}  # fmt: skip
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
            sys.stderr.write(plain(text) + "\n")  # at once: another thread may be ending the run

    def detail(self, text: str) -> None:
        if self.verbose:
            self.note(text)

    def status(self, tr: Trajectory) -> None:
        self.note(f"{tr.status.code}: {tr.status.message} {tr.status.advice}".rstrip())
        for text in tr.status.notes:
            self.note(f"note: {text}")

    def taken(self, inputs: Inputs) -> None:
        """Which columns of a token file with a header became coordinates: a label may be one."""
        from .._files import header

        if names := header(inputs.source):
            shown = listed(names[:8]) + (", ..." if len(names) > 8 else "")
            n, d = inputs.z.shape
            self.note(f"{inputs.source}: {n} tokens, d = {d}; coordinates are the columns {shown}")

    @contextmanager
    def working(self, what: str) -> Iterator[Callable[[float, str], None]]:
        """Say what is going on if it is not done within a second: nobody sits in the dark.

        Work that is quick most days stays silent. Call what it gives with (share done, step) as a
        new step begins: from the first line on, each has its own. Where the kernels were never
        compiled, which takes the longest, the first line says so.
        """
        if self.quiet:
            yield lambda done, step: None
            return
        from threading import Timer

        now, late = [what], []

        def say() -> None:
            late.append(True)
            first = "" if kernels_are_compiled() else "; compiling kernels, once, takes a while"
            self.note(f"{now[0]}{first} ...")

        def step(done: float, what: str) -> None:
            now[0] = what
            if late:
                self.note(f"{what} ...")

        timer = Timer(PATIENCE, say)
        timer.daemon = True
        timer.start()
        try:
            yield step
        finally:
            timer.cancel()

    @contextmanager
    def bar(
        self, total: float | None, unit: str, what: str = "computing"
    ) -> Iterator[Callable[..., None] | None]:
        """A progress bar on a terminal; elsewhere a line if it takes long. Call it (done, what)."""
        if self.quiet or not sys.stderr.isatty():
            with self.working(what):
                yield None
            return
        from tqdm import tqdm

        with tqdm(total=total, unit=unit, leave=False, file=sys.stderr) as progress:

            def move(done: float, what: object = "") -> None:
                progress.set_postfix_str(plain(str(what)), refresh=False)
                progress.update(done - progress.n)

            if not kernels_are_compiled():
                progress.set_postfix_str("compiling kernels, once")
            yield move

    @contextmanager
    def steps(self, what: str) -> Iterator[Callable[[float, str], None]]:
        """For a few long steps: a bar on a terminal, a line each elsewhere; (share done, step)."""
        if self.quiet or not sys.stderr.isatty():
            with self.working(what) as step:
                yield step
            return
        with self.bar(1.0, "") as move:
            assert move is not None
            move(0.0, what)
            yield move


def document(voice: Voice, inputs: Inputs, result: dict[str, Any]) -> str:
    """One JSON document: what made it, from which numbers, and the result."""
    head = {"version": __version__, "command": voice.command, "inputs": inputs.describe()}
    return json.dumps(head | {"result": result}, allow_nan=False, ensure_ascii=False)


def rows_shown(z: np.ndarray) -> int:
    return min(len(z), ROWS_ON_SCREEN) if sys.stdout.isatty() else len(z)


def print_table(table: Table, total: int, spare: Sequence[str] = ()) -> None:
    """The table, in short column names; a terminal gets no more than its width.

    `total` is the number of rows there are, `spare` the columns that go first.
    """
    from dataclasses import replace

    table = replace(table, columns=tuple(SHORT.get(name, name) for name in table.columns))
    table, gone = narrowed(table, spare) if sys.stdout.isatty() else (table, [])
    show(table.to_text())
    left = [f"{total - len(table.rows)} more"] if len(table.rows) < total else []
    left += [f"{len(gone)} columns left out: {_first_and_last(gone)}"] if gone else []
    if left:
        show(f"... {'; '.join(left)}\n    (pipe the output or use --json for all)")


def narrowed(table: Table, spare: Sequence[str]) -> tuple[Table, list[str]]:
    """The table as wide as the terminal, and the columns that had to go: spare ones, then the last.

    The first column and one more always stay.
    """
    from dataclasses import replace
    from shutil import get_terminal_size

    width, before = get_terminal_size().columns, table.columns
    while len(table.columns) > 2 and max(map(len, table.to_text().split("\n"))) > width:
        name = next((name for name in spare if name in table.columns), table.columns[-1])
        at = table.columns.index(name)
        cut = tuple(row[:at] + row[at + 1 :] for row in table.rows)
        table = replace(table, columns=table.columns[:at] + table.columns[at + 1 :], rows=cut)
    return table, [name for name in before if name not in table.columns]


def _first_and_last(names: Sequence[str]) -> str:
    return listed(names) if len(names) < 4 else f"{names[0]}, ..., {names[-1]}"


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


def long_rationals(li: Limit) -> int:
    """Digits of the longest rational among the limits; 0 where all are short enough to read."""
    points = li.exact_points or ()
    longest = max((len(str(x)) for row in points for x in row), default=0)
    return longest if longest > LONGEST_RATIONAL else 0


def limit_table(li: Limit, rows: int, rules: Sequence[str], *, full: bool = True) -> Table:
    """The first `rows` tokens, each with its rule as `rules` say it.

    Unless `full`, a rational too long to read is the float nearest to it, marked by ≈.
    """
    from ..drawing.report import Table

    points: Sequence = li.points.tolist() if li.exact_points is None else li.exact_points
    if not full and long_rationals(li):
        points = [
            [
                x if len(str(x)) <= LONGEST_RATIONAL else f"≈{near:.10g}"
                for x, near in zip(row, floats)
            ]
            for row, floats in zip(points, li.points.tolist())
        ]
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
        f"layer {li.layers}\narithmetic: {li.arithmetic}."
    )
    if li.certified:
        return text
    more = " ..." if len(li.undecided) > 10 else ""
    return (
        f"{text}\nundecided: {listed(li.undecided[:10])}{more}; their rows hold the last "
        "layer computed. Raise --max-layers; if A is not symmetric positive definite there may be "
        "no limit."
    )


def check_text(checks: Sequence[Check]) -> str:
    """Verdict, margin and statement of each, in 80 columns; below it the hypotheses that fail."""
    from ..drawing.tables import short_text

    margins = [short_text(c.margin) if c.applies else "" for c in checks]
    name = max((len(c.theorem) for c in checks), default=0)
    said = max(map(len, ["verdict", *(c.verdict for c in checks)]))
    margin = max(map(len, ["margin", *margins]))
    at = name + said + margin + 6
    lines = [f"{'':{name}}  {'verdict':{said}}  {'margin':>{margin}}  statement"]
    for c, number in zip(checks, margins):
        missing = [h.name.partition(" (")[0] for h in c.hypotheses if not h.holds]
        parts = [c.statement, *([f"[fails: {listed(missing)}]"] if missing else [])]
        text = [line for part in parts for line in textwrap.wrap(part, WIDTH - at)]
        lines.append(f"{c.theorem:{name}}  {c.verdict:{said}}  {number:>{margin}}  {text[0]}")
        lines += [" " * at + line for line in text[1:]]
    return "\n".join(line.rstrip() for line in lines)


def check_detail(c: Check) -> str:
    from ..drawing.report import jsonable

    facts = "; ".join(
        f"{h.name}: {'yes' if h.holds else 'NO'}, {h.value:.3g}" for h in c.hypotheses
    )
    witness = json.dumps(jsonable(c.witness), ensure_ascii=False)
    outcome = f"; {c.arithmetic}, witness {witness}" if c.applies else ""
    return f"{c.theorem} ({c.reference}) {facts}{outcome}"
