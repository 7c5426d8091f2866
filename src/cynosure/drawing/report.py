"""Report: parameters, tables, theorem checks and pictures as one self-contained HTML or JSON.

Nothing is fetched when the page is opened: pictures are embedded, styles inline, no script runs.
"""

from __future__ import annotations

import base64
import io
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from .. import __version__
from .._files import write_atomically
from .page import page
from .tables import Table, jsonable, prose, short_text

if TYPE_CHECKING:
    from ..theorems import Check

__all__ = ["Comparison", "Picture", "Report", "Table", "jsonable"]

_PANELS = 10.0  # inches; a wider drawing has panels side by side
_STAMPS: dict[str, dict[str, None]] = {  # a date would be other bytes every time
    "svg": {"Date": None},
    "png": {"Software": None},
    "pdf": {"CreationDate": None},
}
_LARGEST_SVG = 400_000  # bytes; beyond, a bitmap is smaller and scrolls better


@final
@dataclass(frozen=True, eq=False)
class Picture:
    """A matplotlib Figure, or the bytes of a GIF, with its caption."""

    title: str
    caption: str
    drawing: Any
    _encoded: dict[str, bytes] = field(default_factory=dict, init=False, repr=False)
    _margins: list[Any] = field(default_factory=list, init=False, repr=False)

    @classmethod
    def of(cls, title: str, draw: Callable[..., Any], *args: Any) -> Picture:
        """The figure that draw(*args) returns; the docstring of `draw` is its caption."""
        return cls(title, " ".join((draw.__doc__ or "").split()), draw(*args))

    @property
    def suffixes(self) -> tuple[str, ...]:
        """The files `save_data` writes for it."""
        return (".gif",) if isinstance(self.drawing, bytes) else (".png", ".svg")

    def encode(self, suffix: str) -> bytes:
        """The picture as a file of that kind, the same bytes every time."""
        if isinstance(self.drawing, bytes):
            return self.drawing
        if suffix not in self._encoded:  # a page and a folder of data may both want it
            self._encoded[suffix] = self._drawn(suffix)
        return self._encoded[suffix]

    def _drawn(self, suffix: str) -> bytes:
        import matplotlib

        if (engine := self.drawing.get_layout_engine()) is not None:
            # Once and for all: a second layout starts from the first and ends a hair beside it.
            engine.execute(self.drawing)
            self.drawing.set_layout_engine("none")
        if not self._margins:  # "tight" would draw the figure once more for every format
            self._margins.append(self.drawing.get_tightbbox().padded(0.1))
        stream = io.BytesIO()
        kind, box = suffix.lstrip("."), self._margins[0]
        how = {"format": kind, "metadata": _STAMPS.get(kind, {}), "bbox_inches": box}
        with matplotlib.rc_context({"svg.hashsalt": self.title}):
            self.drawing.savefig(stream, dpi=150, **how)
        return stream.getvalue()

    def to_html(self) -> str:
        look, kind, data = "", "gif", self.encode(".svg")
        if not isinstance(self.drawing, bytes):
            kind = "svg+xml"
            if len(data) > _LARGEST_SVG:
                kind, data = "png", self.encode(".png")
            width, height = self.drawing.get_size_inches()
            if width > 2 * height or width >= _PANELS:  # on a narrow screen it scrolls sideways
                look = " class=wide"
        source = f"data:image/{kind};base64,{base64.b64encode(data).decode()}"
        text = f"<b>{escape(self.title)}.</b> {prose(self.caption)}"
        return (
            f'<figure{look}><img alt="{escape(self.title)}" src="{source}">'
            f"<figcaption>{text}</figcaption></figure>\n"
        )


@final
@dataclass(frozen=True)
class Comparison:
    """What a claim was compared with, and whether it survived.

    `claim`: a sentence of the summary. `beside`: the parameters varied that it does not mention, or
    the null model. `seen`: the numbers, with how many starts, and an interval of a rate. `survives`
    is computed from them, never typed.
    """

    claim: str
    beside: str
    seen: str
    survives: bool


@final
@dataclass(frozen=True, eq=False)
class Report:
    """Results of an experiment or a run: text, controls, tables, checks, pictures, chapters.

    `summary` is prose: blank lines part paragraphs, backticks mark code. `params` are the values
    that reproduce it, `command` the line to type. A chapter is a Report of its own.
    """

    title: str
    summary: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)
    tables: tuple[Table, ...] = ()
    checks: Mapping[str, tuple[Check, ...]] = field(default_factory=dict)
    figures: tuple[Picture, ...] = ()
    movies: tuple[Picture, ...] = ()
    chapters: tuple[Report, ...] = ()
    command: str = ""
    controls: tuple[Comparison, ...] = ()

    def parts(self) -> Iterator[Report]:
        """This report and every chapter below it."""
        yield self
        for chapter in self.chapters:
            yield from chapter.parts()

    @property
    def failures(self) -> list[tuple[str, Check]]:
        """(configuration, check) wherever a statement applies and does not hold."""
        return [
            (name, check)
            for report in self.parts()
            for name, checks in report.checks.items()
            for check in checks
            if check.applies and not check.holds
        ]

    @property
    def verdict(self) -> str:
        """One sentence on all checks."""
        made = [c for r in self.parts() for checks in r.checks.values() for c in checks]
        if not made:
            return "No theorem was checked."
        apply, failed = sum(c.applies for c in made), len(self.failures)
        text = f"Checks made: {len(made)}; applicable: {apply}; of these holding: {apply - failed}"
        if failed:
            return f"{text}; FAILING: {failed}."
        return f"{text}, all of them." if apply else f"{text}."

    def to_dict(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "version": __version__,
            "command": self.command,
            "params": jsonable(self.params),
            "summary": self.summary,
            "verdict": self.verdict,
            "controls": jsonable(self.controls),
            "tables": jsonable(self.tables),
            "checks": jsonable(self.checks),
            "figures": [{"title": f.title, "caption": f.caption} for f in self.figures],
            "movies": [{"title": f.title, "caption": f.caption} for f in self.movies],
            "chapters": [c.to_dict() for c in self.chapters],
        }

    def to_json(self) -> str:
        """Everything but the pictures; infinities and NaN are null."""
        return json.dumps(self.to_dict(), indent=1, ensure_ascii=False, allow_nan=False)

    def to_html(self) -> str:
        """One page that needs nothing else."""
        links = "".join(
            f'<a href="#top.{i}">{escape(c.title)}</a>' for i, c in enumerate(self.chapters, 1)
        )
        contents = f"<nav>{links}</nav>\n" if links else ""
        footer = f"<footer>Made by cynosure {__version__}.</footer>"
        return page(self.title, f"{contents}{_section(self, 1, 'top')}{footer}")

    def __repr__(self) -> str:
        held = {"tables": self.tables, "figures": self.figures, "chapters": self.chapters}
        counts = [f"{len(x)} {name}" for name, x in held.items() if x]
        return f"Report({', '.join([repr(self.title), *counts])})"

    def _repr_html_(self) -> str:
        text = escape(self.to_html(), quote=True)
        return f'<iframe srcdoc="{text}" style="width:100%;height:40em;border:0"></iframe>'

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write .html or .json, whole or not at all."""
        kinds = {".html": self.to_html, ".json": self.to_json}
        suffix = Path(path).suffix.lower()
        if suffix not in kinds:
            raise ValueError(f"{path}: a report is saved as .html or .json, got {suffix!r}")
        text = kinds[suffix]().encode()
        return write_atomically(path, lambda stream: stream.write(text))

    def save_data(self, folder: str | os.PathLike[str]) -> list[Path]:
        """Tables as CSV, figures as PNG and SVG, movies as GIF; each chapter in its own folder."""
        folder, written = Path(folder), []
        for i, table in enumerate(self.tables, 1):
            data = table.to_csv().encode()
            written.append(_put(folder / f"table{i}-{_slug(table.title)}.csv", data))
        pictures = [("figure", self.figures), ("movie", self.movies)]
        for what, group in pictures:
            for i, picture in enumerate(group, 1):
                name = f"{what}{i}-{_slug(picture.title)}"
                written += [
                    _put(folder / f"{name}{x}", picture.encode(x)) for x in picture.suffixes
                ]
        for i, chapter in enumerate(self.chapters, 1):
            written += chapter.save_data(folder / f"{i}-{_slug(chapter.title)}")
        return written


def _put(path: Path, data: bytes) -> Path:
    return write_atomically(path, lambda stream: stream.write(data))


def _slug(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:48] or "untitled"


# --- sections ------------------------------------------------------------------------------------


_LEGEND = (
    "In the tables of checks: ✓ applies and holds, with its margin (the signed distance to a "
    "violation); ✗ applies and fails; · a hypothesis is missing, named in the details."
)


def _section(report: Report, level: int, anchor: str) -> str:
    paragraphs = [p for p in re.split(r"\n\s*\n", report.summary.strip()) if p]
    parts = [f'<section id="{anchor}"><h{level}>{escape(report.title)}</h{level}>\n']
    parts += [f"<p>{prose(p)}</p>\n" for p in paragraphs]
    if any(r.checks for r in report.parts()):
        mark = "bad" if report.failures else "good"
        parts.append(f'<p class="verdict {mark}">{escape(report.verdict)}</p>\n')
        parts.append(f"<p class=note>{_LEGEND}</p>\n" if level == 1 else "")
    parts += [p.to_html() for p in (*report.figures, *report.movies)]
    parts.append(_controls(report.controls))
    parts += [t.to_html() for t in report.tables]
    parts.append(_checks(report.checks))
    deeper = min(level + 1, 3)
    parts += [_section(c, deeper, f"{anchor}.{i}") for i, c in enumerate(report.chapters, 1)]
    parts.append(_provenance(report))
    return "".join(parts) + "</section>\n"


def _controls(controls: tuple[Comparison, ...]) -> str:
    """Each claim beside its null model or varied parameters, and whether it survives."""
    if not controls:
        return ""
    body = "".join(
        f"<tr><td class=say>{prose(c.claim)}</td><td class=say>{prose(c.beside)}</td>"
        f"<td class=say>{prose(c.seen)}</td>{_sign(c.survives)}</tr>\n"
        for c in controls
    )
    return (
        "<h4>Control</h4>\n<div class=scroll><table><thead><tr><th>claim</th><th>compared with</th>"
        f"<th>seen</th><th class=c>survives</th></tr></thead><tbody>{body}</tbody></table></div>\n"
    )


def _provenance(report: Report) -> str:
    if not report.params and not report.command:
        return ""
    rows = tuple((k, short_text(v)) for k, v in report.params.items())
    command = f"<pre>{escape(report.command)}</pre>" if report.command else ""
    table = Table("", ("parameter", "value"), rows).to_html() if rows else ""
    return f"<details><summary>How to reproduce this</summary>{command}{table}</details>\n"


def _checks(checks: Mapping[str, tuple[Check, ...]]) -> str:
    """A matrix of verdicts, theorems by configurations; what applies nowhere and details folded."""
    if not checks:
        return ""
    by_theorem: dict[str, dict[str, Check]] = {}
    for name, group in checks.items():
        for check in group:
            by_theorem.setdefault(check.theorem, {})[name] = check
    applying = {t: f for t, f in by_theorem.items() if any(c.applies for c in f.values())}
    idle = {t: f for t, f in by_theorem.items() if t not in applying}
    shown = _matrix(applying, tuple(checks)) if applying else ""
    if idle:
        names = ", ".join(map(escape, idle))
        folded = _matrix(idle, tuple(checks))
        shown += f"<details><summary>Not applicable here: {names}</summary>{folded}</details>\n"
    details = "".join(
        f"<details><summary>Details: {escape(name)}</summary>{_details(group)}</details>\n"
        for name, group in checks.items()
    )
    return f"<h4>Theorem checks</h4>\n{shown}{details}"


def _matrix(by_theorem: Mapping[str, Mapping[str, Check]], columns: tuple[str, ...]) -> str:
    head = "".join(f"<th class=c>{escape(name)}</th>" for name in columns)
    body = ""
    for theorem, by_column in by_theorem.items():
        first = next(iter(by_column.values()))
        marks = "".join(_mark(by_column.get(name)) for name in columns)
        body += (
            f"<tr><td><b>{escape(theorem)}</b></td><td class=say>{prose(first.statement)}"
            f" <span class=note>{escape(first.reference)}</span></td>{marks}</tr>\n"
        )
    return (
        "<div class=scroll><table><thead><tr><th></th><th>statement</th>"
        f"{head}</tr></thead><tbody>{body}</tbody></table></div>\n"
    )


def _mark(check: Check | None) -> str:
    if check is None:
        return "<td></td>"
    margin = f" <small>{short_text(check.margin)}</small>" if check.applies else ""
    return _sign(check.holds if check.applies else None, margin)


def _sign(good: bool | None, more: str = "") -> str:
    kind, sign = {True: ("good", "✓"), False: ("bad", "✗"), None: ("idle", "·")}[good]
    return f'<td class="c {kind}">{sign}{more}</td>'


def _details(checks: tuple[Check, ...]) -> str:
    def row(c: Check) -> tuple[Any, ...]:
        seen = (c.holds, c.margin, c.tol) if c.applies else (None, None, None)
        missing = "needs: " + "; ".join(h.name for h in c.hypotheses if not h.holds)
        return c.theorem, c.applies, *seen, c.arithmetic, c.witness if c.applies else missing

    columns = ("", "applies", "holds", "margin", "tolerance", "arithmetic", "witness / why not")
    return Table("", columns, tuple(map(row, checks))).to_html()
