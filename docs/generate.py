"""Redraw the pictures of docs/, and take full runs into the gallery.

    python docs/generate.py --pictures         redraw docs/images
    python docs/generate.py --gallery FOLDER   take FOLDER/NAME/, as `cynosure run NAME --out
                                               FOLDER/NAME` leaves it, into the gallery
    python docs/generate.py --gallery FOLDER --run   first run there what the gallery has not, or
                                               has with other parameters than today's

The pages that are read off the package are written when the site is built (`_site.py`). The gallery
needs full runs, minutes each: what it shows is stored in docs/gallery/, and a study of which FOLDER
has no run stays as it is. Studies on data that does not come with the package (`--set data=`) are
run by hand.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import _gallery
from cynosure.figures.figure3 import architectures

DOCS = Path(__file__).resolve().parent


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
    parser = argparse.ArgumentParser(description="Redraw the pictures, update the gallery.")
    parser.add_argument("--pictures", action="store_true", help="redraw docs/images")
    parser.add_argument("--gallery", type=Path, metavar="FOLDER", help="take runs from FOLDER")
    parser.add_argument(
        "--run", action="store_true", help="with --gallery: run first what is stale"
    )
    asked = parser.parse_args(argv)
    if asked.run and asked.gallery is None:
        parser.error("--run needs --gallery FOLDER")
    if asked.gallery is not None:
        if asked.run:
            _gallery.run_stale(asked.gallery)
        print(*_gallery.update(asked.gallery), sep="\n")
    if asked.pictures:
        print(*(path.relative_to(DOCS.parent) for path in draw()), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
