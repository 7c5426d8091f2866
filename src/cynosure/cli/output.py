"""What a command shows: tables and JSON on stdout, status and progress on stderr."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from .. import __version__
from .._compiled import compiling
from .inputs import Inputs, listed
from .terminal import plain, show

if TYPE_CHECKING:
    import numpy as np

    from ..analysis.limits import Limit
    from ..analysis.spectra import LimitingObject
    from ..drawing.report import Report
    from ..drawing.tables import Table
    from ..simulation.trajectory import Trajectory
    from ..theorems import Check

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
        """Say what is done, and each (share done, step) it is told of, if it takes a second."""
        if self.quiet:
            yield lambda done, step: None
            return
        from threading import Timer

        now, late = [what], []

        def say() -> None:
            late.append(True)
            first = "; compiling kernels, once, takes a while" if compiling() else ""
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

            move(0.0, "compiling kernels, once" if compiling() else what)
            yield move

    @contextmanager
    def steps(self, what: str) -> Iterator[Callable[[float, str], None]]:
        """For a few long steps: a bar on a terminal, a line each elsewhere; (share done, step)."""
        if self.quiet or not sys.stderr.isatty():
            with self.working(what) as step:
                yield step
            return
        with self.bar(1.0, "", what) as move:
            assert move is not None
            yield move


def document(voice: Voice, inputs: Inputs | dict[str, Any], result: Any) -> str:
    """One JSON document: what made it, from which numbers or files, and the result."""
    from ..drawing.tables import jsonable

    given = inputs if isinstance(inputs, dict) else inputs.describe()
    head = {"version": __version__, "command": voice.command, "inputs": given}
    return json.dumps(head | {"result": jsonable(result)}, allow_nan=False, ensure_ascii=False)


def show_table(columns: Sequence[str], rows: Iterable[Sequence], width: int | None = None) -> None:
    from ..drawing.tables import Table

    show(Table("", tuple(columns), tuple(map(tuple, rows))).to_text(width))


def rows_shown(z: np.ndarray) -> int:
    return min(len(z), ROWS_ON_SCREEN) if sys.stdout.isatty() else len(z)


def print_table(table: Table, total: int, spare: Sequence[str] = ()) -> None:
    """The table of `total` rows; a terminal gets its width, where columns of `spare` go first."""
    from dataclasses import replace

    table = replace(table, columns=tuple(SHORT.get(name, name) for name in table.columns))
    table, gone = narrowed(table, spare) if sys.stdout.isatty() else (table, [])
    show(table.to_text())
    left = [f"{total - len(table.rows)} more"] if len(table.rows) < total else []
    if gone:
        names = listed(gone) if len(gone) < 4 else f"{gone[0]}, ..., {gone[-1]}"
        left.append(f"{len(gone)} columns left out: {names}")
    if left:
        show(f"... {'; '.join(left)}\n    (pipe the output or use --json for all)")


def narrowed(table: Table, spare: Sequence[str]) -> tuple[Table, list[str]]:
    """The table as wide as the terminal, and the columns that went: of `spare`, then the last."""
    from dataclasses import replace
    from shutil import get_terminal_size

    width, before = get_terminal_size().columns, table.columns
    while len(table.columns) > 2 and max(map(len, table.to_text().split("\n"))) > width:
        name = next((name for name in spare if name in table.columns), table.columns[-1])
        at = table.columns.index(name)
        cut = tuple(row[:at] + row[at + 1 :] for row in table.rows)
        table = replace(table, columns=table.columns[:at] + table.columns[at + 1 :], rows=cut)
    return table, [name for name in before if name not in table.columns]


def save_into(folder: Path, report: Report) -> None:
    """The report as report.json, data/ and, last, report.html."""
    report.save(folder / "report.json")
    report.save_data(folder / "data")
    report.save(folder / "report.html")


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
    from ..drawing.tables import Table

    z = tr.values[-1].tolist()
    coordinates = [f"z{j}" for j in range(len(z[0]))]
    if end is not None:
        cells = tuple((i, int(end.labels[i]), *z[i]) for i in range(rows))
        return Table("", ("token", "cluster", *coordinates), cells)
    ro = roles(tr)
    followed = ro.followed(int(tr.t[-1]))
    settled = tr.history.settled_at if tr.history is not None else [-1] * len(z)

    def whom(i: int) -> str:
        return str(followed.target[i]) if followed.size[i] == 1 else listed(followed[i][:8])

    return Table(
        "",
        ("token", "leads since", "follows", "settled at", *coordinates),
        tuple((i, _layer(ro.born[i]), whom(i), _layer(settled[i]), *z[i]) for i in range(rows)),
    )


def trajectory_data(tr: Trajectory, end: LimitingObject | None) -> dict[str, Any]:
    from ..analysis.leaders import roles

    alpha = getattr(tr.dynamics, "exact_alpha", None)
    data: dict[str, Any] = {
        "dynamics": type(tr.dynamics).__name__, "alpha": None if alpha is None else str(alpha),
        "status": tr.status, "z": tr.values[-1],
    }  # fmt: skip
    if tr.stepper is None:
        data["layer"] = int(tr.t[-1])
    else:
        data |= {"time": float(tr.t[-1]), "stepper": str(tr.stepper)}
    if end is not None:
        return data | {"limit": end.to_dict() | {"text": str(end)}}
    born, history = roles(tr).born, tr.history
    settled = None if history is None else history.settled_at
    return data | {"leaders": (born >= 0).nonzero()[0], "born": born, "settled_at": settled}


def _rules_in_words(li: Limit) -> list[str]:
    """The rule of each token for people: "follows a leader" instead of S."""
    from ..engine.certificates import RULE_WORDS

    return [RULE_WORDS[str(rule)] for rule in li.rule]


def long_rationals(li: Limit) -> int:
    """Digits of the longest rational among the limits; 0 where all are short enough to read."""
    points = li.exact_points or ()
    longest = max((len(str(x)) for row in points for x in row), default=0)
    return longest if longest > LONGEST_RATIONAL else 0


def limit_table(li: Limit, rows: int, *, codes: bool = False, full: bool = True) -> Table:
    """The first `rows` tokens; unless `full`, ≈ marks the float nearest to a long rational."""
    from ..drawing.tables import Table

    def short(x: Any, near: float) -> Any:
        return x if full or len(str(x)) <= LONGEST_RATIONAL else f"≈{near:.10g}"

    points: Sequence = li.points.tolist()
    if li.exact_points is not None:
        points = [list(map(short, *both)) for both in zip(li.exact_points, points)]
    rules = [str(rule) or "undecided" for rule in li.rule] if codes else _rules_in_words(li)
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
    names = (
        "certified undecided leaders born settled_at rule follows margin layers arithmetic "
        "exact_decisions points exact_points"
    ).split()
    data = {name: getattr(li, name) for name in names}
    return {"alpha": alpha} | data | {"rule_in_words": _rules_in_words(li)}


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
    from ..drawing.tables import jsonable

    facts = "; ".join(
        f"{h.name}: {'yes' if h.holds else 'NO'}, {h.value:.3g}" for h in c.hypotheses
    )
    witness = json.dumps(jsonable(c.witness), ensure_ascii=False)
    outcome = f"; {c.arithmetic}, witness {witness}" if c.applies else ""
    return f"{c.theorem} ({c.reference}) {facts}{outcome}"
