"""Report: parameters, tables, theorem checks and pictures as one self-contained HTML or JSON.

Nothing is fetched when the page is opened: pictures are embedded, styles inline, no script runs.
"""

from __future__ import annotations

import base64
import csv
import io
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, is_dataclass
from fractions import Fraction
from html import escape
from operator import attrgetter
from pathlib import Path
from typing import Any, final

import numpy as np

from .. import __version__
from .._files import write_atomically
from ..theorems import Check

__all__ = ["Picture", "Report", "Table", "jsonable"]

_LARGEST_SVG = 400_000  # bytes; beyond, a bitmap is smaller and scrolls better
_LONG = 24  # rows; a longer table scrolls in its own box, under its own head


@final
@dataclass(frozen=True)
class Table:
    """Rows under named columns; the title also names its CSV file."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    note: str = ""

    @classmethod
    def of(
        cls,
        title: str,
        records: Iterable[Any],
        columns: Mapping[str, str | Callable[[Any], Any]],
        note: str = "",
    ) -> Table:
        """One row per record: under each header the field of that name, or what a function says.

        Example
        -------
        >>> pairs = [(2, 3), (5, 7)]
        >>> table = Table.of("", pairs, {"first": lambda p: p[0], "sum": sum})
        >>> table.rows
        ((2, 5), (5, 12))
        """
        readers = [attrgetter(read) if isinstance(read, str) else read for read in columns.values()]
        rows = tuple(tuple(read(record) for read in readers) for record in records)
        return cls(title, tuple(columns), rows, note)

    def to_text(self) -> str:
        """Aligned columns for a terminal: numbers to the right, words to the left."""
        cells = [list(self.columns), *([_text(x) for x in row] for row in self.rows)]
        width = [max(len(row[j]) for row in cells) for j in range(len(self.columns))]
        right = [all(_is_number(row[j]) for row in self.rows) for j in range(len(self.columns))]
        lines = (
            "  ".join(
                c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, width, right, strict=True)
            )
            for row in cells
        )
        return "\n".join(line.rstrip() for line in lines)

    def to_csv(self) -> str:
        """Full precision, one header line."""
        stream = io.StringIO()
        out = csv.writer(stream, lineterminator="\n")
        out.writerow(self.columns)
        out.writerows([_exact_text(x) for x in row] for row in self.rows)
        return stream.getvalue()

    def to_html(self) -> str:
        head = "".join(f"<th>{escape(c)}</th>" for c in self.columns)
        body = "".join(
            "<tr>" + "".join(_html_cell(x) for x in row) + "</tr>\n" for row in self.rows
        )
        note = f"<p class=note>{_prose(self.note)}</p>" if self.note else ""
        title = f"<h4>{escape(self.title)}</h4>\n" if self.title else ""
        box = "scroll tall" if len(self.rows) > _LONG else "scroll"
        return (
            f'{title}<div class="{box}"><table><thead><tr>{head}</tr></thead>\n'
            f"<tbody>{body}</tbody></table></div>{note}\n"
        )


@final
@dataclass(frozen=True, eq=False)
class Picture:
    """A matplotlib Figure, or the bytes of a GIF, with its caption."""

    title: str
    caption: str
    drawing: Any

    @property
    def suffixes(self) -> tuple[str, ...]:
        """The files `save_data` writes for it."""
        return (".gif",) if isinstance(self.drawing, bytes) else (".png", ".svg")

    def encode(self, suffix: str) -> bytes:
        """The picture as a file of that kind, the same bytes every time."""
        if isinstance(self.drawing, bytes):
            return self.drawing
        import matplotlib

        if self.drawing.get_layout_engine() is not None:
            # Once and for all: a second layout starts from the first and ends a hair beside it.
            self.drawing.draw_without_rendering()
            self.drawing.set_layout_engine("none")
        stream = io.BytesIO()
        with matplotlib.rc_context({"svg.hashsalt": self.title}):
            kind = suffix.lstrip(".")
            stamp = {"Date": None} if kind == "svg" else {"Software": None}
            self.drawing.savefig(stream, format=kind, dpi=150, bbox_inches="tight", metadata=stamp)
        return stream.getvalue()

    def to_html(self) -> str:
        if isinstance(self.drawing, bytes):
            kind, data = "gif", self.drawing
        else:
            kind, data = "svg+xml", self.encode(".svg")
            if len(data) > _LARGEST_SVG:
                kind, data = "png", self.encode(".png")
        source = f"data:image/{kind};base64,{base64.b64encode(data).decode()}"
        text = f"<b>{escape(self.title)}.</b> {_prose(self.caption)}"
        return (
            f'<figure><img alt="{escape(self.title)}" src="{source}">'
            f"<figcaption>{text}</figcaption></figure>\n"
        )


@final
@dataclass(frozen=True, eq=False)
class Report:
    """What one experiment found: text, tables, checks by configuration, pictures, chapters.

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
            "tables": [jsonable(t) for t in self.tables],
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
        return (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>{escape(self.title)}</title>\n<style>{_STYLE}</style></head>\n"
            f"<body><main>\n{_contents(self)}{_section(self, 1, 'top')}"
            f"<footer>Made by cynosure {__version__}.</footer></main></body></html>\n"
        )

    def _repr_html_(self) -> str:
        page = escape(self.to_html(), quote=True)
        return f'<iframe srcdoc="{page}" style="width:100%;height:40em;border:0"></iframe>'

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
        for kind, group in pictures:
            for i, picture in enumerate(group, 1):
                for suffix in picture.suffixes:
                    name = f"{kind}{i}-{_slug(picture.title)}{suffix}"
                    written.append(_put(folder / name, picture.encode(suffix)))
        for i, chapter in enumerate(self.chapters, 1):
            written += chapter.save_data(folder / f"{i}-{_slug(chapter.title)}")
        return written


def jsonable(x: Any) -> Any:
    """`x` in JSON's own types: arrays as lists, rationals as strings, NaN and infinity as null."""
    if x is None or isinstance(x, str | bool | int):
        return x
    if isinstance(x, float | np.floating):
        return float(x) if math.isfinite(x) else None
    if isinstance(x, np.ndarray):
        plain = x.dtype.kind in "biu" or (x.dtype.kind == "f" and bool(np.isfinite(x).all()))
        return x.tolist() if plain else jsonable(x.tolist())
    if isinstance(x, np.generic):
        return x.item()
    if isinstance(x, Mapping):
        return {str(k): jsonable(v) for k, v in x.items()}
    if is_dataclass(x) and not isinstance(x, type):
        return jsonable(asdict(x))
    if isinstance(x, list | tuple | set | frozenset):
        return [jsonable(v) for v in x]
    return str(x)


def _put(path: Path, data: bytes) -> Path:
    return write_atomically(path, lambda stream: stream.write(data))


def _slug(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:48] or "untitled"


# --- cells ---------------------------------------------------------------------------------------


def _is_number(x: Any) -> bool:
    number = isinstance(x, int | float | np.number | Fraction)
    return x is None or (number and not isinstance(x, bool | np.bool_))


def _text(x: Any) -> str:
    """Four significant digits: for reading, not for computing."""
    if x is None:
        return "–"
    if isinstance(x, bool | np.bool_):
        return "yes" if x else "no"
    if isinstance(x, float | np.floating):
        if math.isnan(x):
            return "–"
        return ("∞" if x > 0 else "-∞") if math.isinf(x) else f"{x:.4g}"
    if isinstance(x, np.ndarray):
        x = x.tolist()
    if isinstance(x, tuple) and any(isinstance(v, float | Fraction) for v in x):
        return "(" + ", ".join(map(_text, x)) + ")"  # a token
    if isinstance(x, list | tuple):
        shown = ", ".join(map(_text, x[:12]))
        return shown + (f", … ({len(x)} in all)" if len(x) > 12 else "")
    if isinstance(x, Mapping):
        return ", ".join(f"{k} = {_text(v)}" for k, v in x.items())
    return str(x)


def _exact_text(x: Any) -> str:
    """Every digit: a float can be read back, a list is separated by blanks."""
    if x is None:
        return ""
    if isinstance(x, np.generic | np.ndarray):
        x = x.tolist()
    if isinstance(x, list | tuple):
        return " ".join(map(_exact_text, x))
    return repr(x) if isinstance(x, float) else str(x)


def _html_cell(x: Any) -> str:
    kind = ' class="r"' if _is_number(x) else ""
    return f"<td{kind}>{escape(_text(x))}</td>"


def _prose(text: str) -> str:
    """Escaped text with `code` marked."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text, quote=False))


# --- sections ------------------------------------------------------------------------------------


def _contents(report: Report) -> str:
    if not report.chapters:
        return ""
    items = "".join(
        f'<a href="#top.{i}">{escape(c.title)}</a>' for i, c in enumerate(report.chapters, 1)
    )
    return f"<nav>{items}</nav>\n"


_LEGEND = (
    "In the tables of checks: ✓ applies and holds, with its margin (the signed distance to a "
    "violation); ✗ applies and fails; · a hypothesis is missing, named in the details."
)


def _section(report: Report, level: int, anchor: str) -> str:
    paragraphs = [p for p in re.split(r"\n\s*\n", report.summary.strip()) if p]
    parts = [f'<section id="{anchor}"><h{level}>{escape(report.title)}</h{level}>\n']
    parts += [f"<p>{_prose(p)}</p>\n" for p in paragraphs]
    if any(r.checks for r in report.parts()):
        mark = "bad" if report.failures else "good"
        parts.append(f'<p class="verdict {mark}">{escape(report.verdict)}</p>\n')
        parts.append(f"<p class=note>{_LEGEND}</p>\n" if level == 1 else "")
    parts += [p.to_html() for p in (*report.figures, *report.movies)]
    parts += [t.to_html() for t in report.tables]
    parts.append(_checks(report.checks))
    deeper = min(level + 1, 3)
    parts += [_section(c, deeper, f"{anchor}.{i}") for i, c in enumerate(report.chapters, 1)]
    parts.append(_provenance(report))
    return "".join(parts) + "</section>\n"


def _provenance(report: Report) -> str:
    if not report.params and not report.command:
        return ""
    rows = tuple((k, _text(v)) for k, v in report.params.items())
    command = f"<pre>{escape(report.command)}</pre>" if report.command else ""
    table = Table("", ("parameter", "value"), rows).to_html() if rows else ""
    return f"<details><summary>How to reproduce this</summary>{command}{table}</details>\n"


_MARKS = {True: ("good", "✓"), False: ("bad", "✗"), None: ("idle", "·")}


def _checks(checks: Mapping[str, tuple[Check, ...]]) -> str:
    """A matrix of verdicts, theorems by configurations; what applies nowhere and details folded."""
    if not checks:
        return ""
    by_theorem: dict[str, dict[str, Check]] = {}
    for name, group in checks.items():
        for check in group:
            by_theorem.setdefault(check.theorem, {})[name] = check
    told = {t: f for t, f in by_theorem.items() if any(c.applies for c in f.values())}
    silent = {t: f for t, f in by_theorem.items() if t not in told}
    shown = _matrix(told, tuple(checks)) if told else ""
    if silent:
        names = ", ".join(map(escape, silent))
        folded = _matrix(silent, tuple(checks))
        shown += f"<details><summary>Not applicable here: {names}</summary>{folded}</details>\n"
    details = "".join(
        f"<details><summary>Details: {escape(name)}</summary>{_details(group)}</details>\n"
        for name, group in checks.items()
    )
    return f"<h4>Theorem checks</h4>\n{shown}{details}"


def _matrix(by_theorem: Mapping[str, Mapping[str, Check]], columns: tuple[str, ...]) -> str:
    head = "".join(f"<th class=c>{escape(name)}</th>" for name in columns)
    body = ""
    for theorem, found in by_theorem.items():
        first = next(iter(found.values()))
        marks = "".join(_mark(found.get(name)) for name in columns)
        body += (
            f"<tr><td><b>{escape(theorem)}</b></td><td class=say>{_prose(first.statement)}"
            f" <span class=note>{escape(first.reference)}</span></td>{marks}</tr>\n"
        )
    return (
        "<div class=scroll><table><thead><tr><th></th><th>statement</th>"
        f"{head}</tr></thead><tbody>{body}</tbody></table></div>\n"
    )


def _mark(check: Check | None) -> str:
    if check is None:
        return "<td></td>"
    kind, sign = _MARKS[check.holds if check.applies else None]
    margin = f" <small>{_text(check.margin)}</small>" if check.applies else ""
    return f'<td class="c {kind}">{sign}{margin}</td>'


def _details(checks: tuple[Check, ...]) -> str:
    rows = tuple(
        (
            c.theorem,
            c.applies,
            c.holds if c.applies else None,
            c.margin if c.applies else None,
            c.tol if c.applies else None,
            c.arithmetic,
            _text(c.witness) if c.applies else _missing(c),
        )
        for c in checks
    )
    columns = ("", "applies", "holds", "margin", "tolerance", "arithmetic", "witness / why not")
    return Table("", columns, rows).to_html()


def _missing(check: Check) -> str:
    return "needs: " + "; ".join(h.name for h in check.hypotheses if not h.holds)


_STYLE = """
:root{--fg:#1d2129;--dim:#667085;--bg:#fbfbfa;--card:#fff;--line:#e3e5e8;--link:#0b5cad;
 --good:#00734f;--bad:#b3261e;--tint:#f1f3f5;color-scheme:light dark}
@media(prefers-color-scheme:dark){:root{--fg:#e6e8eb;--dim:#9aa4b2;--bg:#14171b;--card:#1b1f24;
 --line:#323841;--link:#7ab7ff;--good:#4cc79a;--bad:#ff8a80;--tint:#22272e}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--fg);
 font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans",sans-serif}
main{max-width:1120px;margin:0 auto;padding:2rem 1.25rem 4rem}
h1{font-size:2rem;line-height:1.2;margin:.2em 0 .6em;text-wrap:balance}
h2{font-size:1.45rem;margin:2.6em 0 .5em;padding-top:1em;border-top:1px solid var(--line)}
h3{font-size:1.2rem;margin:2.2em 0 .5em}h4{font-size:1.02rem;margin:1.8em 0 .5em}
p{max-width:75ch;margin:.6em 0}
a{color:var(--link);text-decoration:none}a:hover{text-decoration:underline}
nav{display:flex;flex-wrap:wrap;gap:.3em 1.4em;font-size:.92rem;margin-bottom:1rem}
code,pre{font:.9em/1.5 ui-monospace,"SF Mono",Menlo,Consolas,"DejaVu Sans Mono",monospace}
code{background:var(--tint);padding:.1em .3em;border-radius:3px}
pre{background:var(--tint);padding:.7em 1em;border-radius:6px;overflow-x:auto}
figure{margin:1.6em 0;padding:1rem;background:#fff;border:1px solid var(--line);border-radius:8px}
figure img{display:block;max-width:100%;height:auto;margin:0 auto}
figcaption{color:#4a5260;font-size:.9rem;max-width:85ch;margin:.8em auto 0}
figcaption code{background:#f1f3f5}
.scroll{overflow-x:auto}
.tall{max-height:38em;overflow-y:auto;border:1px solid var(--line);border-radius:6px}
.tall thead th{position:sticky;top:0;background:var(--card)}
@media print{.tall{max-height:none}}
table{border-collapse:collapse;font-size:.88rem;font-variant-numeric:tabular-nums;margin:.4em 0}
th,td{padding:.34em .8em;border-bottom:1px solid var(--line);text-align:left;vertical-align:top}
th{color:var(--dim);font-weight:600;white-space:nowrap}
.r{text-align:right;white-space:nowrap}.c{text-align:center;white-space:nowrap}
td.say{min-width:24em}th.c{white-space:normal;max-width:9em}
.note,small{color:var(--dim);font-size:.85rem}
.good{color:var(--good)}.bad{color:var(--bad);font-weight:700}.idle{color:var(--dim)}
.verdict{font-weight:600;border-left:3px solid currentColor;padding-left:.8em}
details{margin:.7em 0}summary{cursor:pointer;color:var(--link)}
footer{margin-top:4rem;color:var(--dim);font-size:.85rem}
"""
