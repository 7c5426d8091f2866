"""The pages on the theory: docs/mathematics.md, one page a chapter, with an anchor a statement.

The source is one file, so that a label (`docs/mathematics.md C5`) finds its section by a search.
The site gets a page for each chapter. Proofs are folded, and a badge says how each statement is
known.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).resolve().parent / "mathematics.md"
LABEL = re.compile(r"^### ([A-Z]\d+[a-z]?)\. ")
LINK = re.compile(r"\]\((?:[\w./-]*mathematics\.md)?#([a-z]\d+[a-z]?)-[^)\s]*\)")
FILES = {  # the beginning of a heading -> file; other chapters are called after their heading
    "A. Models": "models",
    "Hardmax": "hardmax",
    "The Frank": "frank-wolfe",
    "Flows": "flows",
    "Sphere": "sphere",
    "Mean field": "mean-field",
    "Any run": "any-run",
    "C. Certificates": "certificates",
    "D. The published": "published-model",
    "E. Measurements": "measurements",
    "F. Constructions": "constructions",
    "What is solid": "solid",
    "Papers": "papers",
    "Symbols": "symbols",
    "Glossary": "glossary",
}


class Chapter(NamedTuple):
    """A page: its file, its title, and its text without the heading."""

    file: str
    title: str
    text: str


def chapters(source: str) -> list[Chapter]:
    """The chapters of the source: its sections of the first level, those of B by the second."""
    out = []
    for title, text in _split(source, "# ")[1:]:
        inner = _split(text, "## ")
        if title.startswith("The mathematics") or len(inner) > 1:
            out += [Chapter(_file(name), name, body) for name, body in inner[1:]]
        else:
            out.append(Chapter(_file(title), title, text))
    return out


def _split(text: str, mark: str) -> list[tuple[str, str]]:
    """(heading, text) of the sections at one level; first what stands before them, without one."""
    out: list[tuple[str, list[str]]] = [("", [])]
    for line in text.splitlines():
        if line.startswith(mark):
            out.append((line[len(mark) :].strip(), []))
        else:
            out[-1][1].append(line)
    return [(title, "\n".join(lines).strip("\n")) for title, lines in out]


def _file(title: str) -> str:
    for start, file in FILES.items():
        if title.startswith(start):
            return file
    return re.sub(r"[^a-z0-9]+", "-", re.sub(r"^[A-Z]\. |\(.*\)", "", title).lower()).strip("-")


def status(text: str, label: str = "") -> str:
    """How a statement is known, in words, from what its section has."""
    if label in ("B39", "B40"):
        return "definition"
    if "*Proof" in text:
        return "proved here"
    if "Measured" in text[:200]:
        return "measured"
    return "proved in the paper, checked by program" if label.startswith("B") else ""


def page(chapter: Chapter) -> str:
    """The text of one page of the site."""
    title = re.sub(r"^[A-Z]\. ", "", chapter.title)
    parts = [f"({_target(chapter)})=\n# {title}"]
    inner = _split(chapter.text, "### ")
    parts.append(_section(inner[0][1]))
    for heading, body in inner[1:]:
        found = LABEL.match(f"### {heading}")
        label = found[1] if found else ""
        anchor = f"({label.lower()})=\n" if label else ""
        badge = status(body, label)
        shown = f"\n\n{{bdg-secondary-line}}`{badge}`" if badge else ""
        parts.append(f"{anchor}## {heading}{shown}\n\n{_section(body)}")
    return "\n\n".join(part for part in parts if part.strip())


def _target(chapter: Chapter) -> str:
    return f"theory-{chapter.file}" if chapter.file != "glossary" else "glossary"


def _section(text: str) -> str:
    text = _folded(text).replace("](../", "](../../")
    text = text.replace("](images/", "](../images/").replace("](docs/", "](../")
    return links(text).strip("\n").removesuffix("---").strip("\n")


def _folded(text: str) -> str:
    """Every proof, from *Proof* to ∎, as something to open."""

    def fold(found: re.Match[str]) -> str:
        title = found[1].strip("*. ") or "Proof"
        return f"::::{{dropdown}} {title}\n{found[2].strip()}\n::::\n"

    return re.sub(r"^(\*Proof[^*]*\*)(.*?∎)[ \t]*$", fold, text, flags=re.M | re.S)


def links(text: str) -> str:
    """Links into mathematics.md as links to the anchors of the site."""
    text = LINK.sub(r"](#\1)", text)
    text = re.sub(r"\]\((?:[\w./-]*mathematics\.md)?#glossary\)", "](#glossary)", text)

    def chapter(found: re.Match[str]) -> str:
        name = found[1]
        known = {re.sub(r"[^a-z0-9]+", "-", key.lower()).strip("-"): v for key, v in FILES.items()}
        file = next((v for key, v in known.items() if name.startswith(key)), "index")
        return f"](#theory-{file})"

    text = re.sub(r"\]\([\w./-]*mathematics\.md#([\w-]+)\)", chapter, text)
    return re.sub(r"\]\([\w./-]*mathematics\.md\)", "](#theory-index)", text)


def pages() -> dict[str, str]:
    """File name -> text of every page on the theory, the list of them included."""
    source = SOURCE.read_text(encoding="utf-8")
    found = chapters(source)
    out = {f"{chapter.file}.md": page(chapter) for chapter in found}
    lead = _split(source, "# ")[1][1].split("\n- [Symbols]")[0].strip()
    rows = []
    for chapter in found:
        labels = re.findall(r"^### ([A-Z]\d+[a-z]?)\.", chapter.text, re.M)
        span = f"{labels[0]} to {labels[-1]}" if len(labels) > 1 else "".join(labels)
        title = re.sub(r"^[A-Z]\. ", "", chapter.title)
        rows.append(f"| [{title}]({chapter.file}.md) | {span} |")
    toc = "\n".join(chapter.file for chapter in found)
    out["index.md"] = "\n\n".join(
        [
            "(theory-index)=\n# Theory",
            lead,
            "| chapter | labels |\n|---|---|\n" + "\n".join(rows),
            "Proofs are folded: click to open one. The badge of a statement says how it is known. "
            "`cy.check(trajectory)` runs those that are functions of a trajectory.",
            f"```{{toctree}}\n:hidden:\n\n{toc}\n```",
        ]
    )
    return out
