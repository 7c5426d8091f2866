"""demo(): the main job on embedded tokens, offline, as one page with a chapter per study."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

from ..drawing.report import Report
from ..figures import figure1, figure2, first_checks, reviews_explained
from ..study import Progress, part

TITLE = "Cynosure: who leads, who follows, and where they end"

# (study, parameters, share of the time); later chapters are added here.
CHAPTERS: tuple[tuple[ModuleType, Any, float], ...] = (
    (figure2, figure2.Params(), 0.8),
    (figure1, figure1.QUICK, 0.1),
    (first_checks, first_checks.QUICK, 0.05),
    (reviews_explained, reviews_explained.QUICK, 0.05),
)


def demo(out: Path, progress: Progress | None = None) -> Report:
    """Run the chapters and leave `out`/report.html, replacing an earlier one, but nothing else."""
    page = out / "report.html"
    if page.exists() and f"<title>{TITLE}<".encode() not in page.read_bytes()[:2000]:
        raise ValueError(f"{page} exists and is no page of the demo; choose another --out")
    chapters: list[Report] = []
    start = 0.0
    for chapter, params, share in CHAPTERS:
        chapters.append(chapter.run(params, part(progress, start, start + share)))
        start += share
    report = Report(TITLE, _SUMMARY, chapters=tuple(chapters), command="cynosure demo")
    report.save(page)
    return report


_SUMMARY = (
    "Tokens that attend only to the token with the largest score, layer after layer. A token that "
    "follows only itself is a leader: it never moves again. The others follow, and their limit at "
    "infinite depth is proved, not guessed: the layers are computed until every later choice is "
    "certain.\n\n"
    "Every number and picture below comes from the run that made this page, on embedded and seeded "
    "tokens; each chapter ends with the command that repeats it."
)
