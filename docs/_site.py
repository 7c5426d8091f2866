"""Write the pages of the site that are read off the package, before Sphinx reads the folder.

None of them is kept in the repository: a build cannot show anything but what the code says.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import _claims
import _gallery
import _http
import _python
import _reference
import _theory
import cynosure

DOCS = Path(__file__).resolve().parent
ROOT_PAGES = ("CONTRIBUTING.md", "CHANGELOG.md")  # they stand at the root of the repository


def pages() -> dict[str, str]:
    """Path below docs/ -> text of every generated page."""
    out = {
        "reference/cli.md": _reference.cli_page(),
        "reference/studies.md": _reference.experiments_page(),
        "reference/http.md": _http.http_page(),
        "reference/claims.md": _claims.page(),
        "gallery.md": _gallery.page(_gallery.stored()),
    }
    out |= {f"reference/python/{name}": text for name, text in _python.pages().items()}
    out |= {f"community/{name.lower()}": _root_page(name) for name in ROOT_PAGES}
    out |= {f"theory/{name}": text for name, text in _theory.pages().items()}
    return out


def _root_page(name: str) -> str:
    """A page from the root of the repository, with links as seen from docs/community/."""
    text = (DOCS.parent / name).read_text(encoding="utf-8")
    return re.sub(r"\]\((?!#|[a-z]+:)([\w./-]+)", r"](../../\1", text).replace(
        "](../../docs/", "](../"
    )


def write(folder: Path = DOCS) -> list[str]:
    """Write what changed, so that Sphinx reads only that again; say what was written."""
    written = []
    for name, text in pages().items():
        path = folder / name
        text = text.rstrip() + "\n"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            written.append(name)
    return written


def state_of_the_package() -> str:
    """A name for the sources as they are: outputs of notebooks of another state are not shown."""
    found = hashlib.sha256()
    for path in sorted(Path(cynosure.__file__).parent.rglob("*.py")):
        found.update(path.read_bytes())
    return found.hexdigest()[:12]
