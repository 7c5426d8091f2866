"""Write the pages of docs/ read off the package: cli, experiments, api, api-http and gallery.

    python docs/generate.py                    write them (`make docs`)
    python docs/generate.py --check            write nothing; exit 1 if one is stale
    python docs/generate.py --pictures         redraw docs/images too
    python docs/generate.py --gallery FOLDER   take FOLDER/NAME/, as `cynosure run NAME --out
                                               FOLDER/NAME` leaves it, into the gallery
    python docs/generate.py --gallery FOLDER --run   first run there what the gallery has not, or
                                               has with other parameters than today's

`tests/test_docs.py` runs the check, so a page cannot drift from the code. The gallery needs full
runs, minutes each: what it shows is stored in docs/gallery/, and an experiment of which FOLDER has
no run stays as it is. Experiments on data that does not come with the package (`--set data=`) are
run by hand.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import _gallery
import _http
import _reference
from _architectures import architectures

DOCS = Path(__file__).resolve().parent
HEADER = "<!-- Written by docs/generate.py; do not edit, run `make docs`. -->\n\n"


def pages() -> dict[str, str]:
    """File name -> text of every generated page."""
    written = {
        "cli.md": _reference.cli_page(),
        "experiments.md": _reference.experiments_page(),
        "api.md": _reference.api_page(),
        "api-http.md": _http.http_page(),
        "gallery.md": _gallery.page(_gallery.stored()),
    }
    return {name: HEADER + text.rstrip() + "\n" for name, text in written.items()}


def stale(folder: Path = DOCS) -> list[str]:
    """The generated pages whose text in `folder` is not what the package says now."""

    def differs(name: str, text: str) -> bool:
        path = folder / name
        return not path.exists() or path.read_text(encoding="utf-8") != text

    return [name for name, text in pages().items() if differs(name, text)]


def draw(folder: Path = DOCS / "images") -> list[Path]:
    """Figure 2 of arXiv 2407.01602 as the README shows it, and the three architectures."""
    import cynosure as cy

    dynamics = cy.PureAttention(alpha=cy.configurations.FIGURE2_ALPHA)
    starts = [cy.configurations.figure2(case) for case in (1, 2, 3, 4)]
    runs = [cy.simulate(dynamics, z0, layers=30) for z0 in starts]
    folder.mkdir(parents=True, exist_ok=True)
    pictures = {"figure2.png": cy.plot.figure2(runs), "architectures.png": architectures()}
    for name, picture in pictures.items():
        picture.savefig(folder / name, dpi=110, metadata={"Software": None})
    return [folder / name for name in pictures]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Write the generated pages of docs/.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if stale")
    parser.add_argument("--pictures", action="store_true", help="redraw docs/images too")
    parser.add_argument("--gallery", type=Path, metavar="FOLDER", help="take runs from FOLDER")
    parser.add_argument(
        "--run", action="store_true", help="with --gallery: run first what is stale"
    )
    asked = parser.parse_args(argv)
    if asked.run and asked.gallery is None:
        parser.error("--run needs --gallery FOLDER")
    if asked.check:
        names = stale()
        for name in names:
            print(f"docs/{name} is stale: run `make docs`")
        return 1 if names else 0
    if asked.gallery is not None:
        if asked.run:
            _gallery.run_stale(asked.gallery)
        print(*_gallery.update(asked.gallery), sep="\n")
    for name, text in pages().items():
        (DOCS / name).write_text(text, encoding="utf-8")
        print(f"docs/{name}")
    if asked.pictures:
        print(*(path.relative_to(DOCS.parent) for path in draw()), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
