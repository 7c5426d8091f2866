"""paper(): the results of a study as a folder that a paper can take as it is."""

from __future__ import annotations

import os
import shutil
import sys
from importlib.metadata import distributions
from pathlib import Path

from .. import __version__
from .report import Report, _put, _slug

_BIB = """@software{{cynosure,
  title = {{Cynosure: self-attention as a dynamical system}},
  author = {{{{The Cynosure authors}}}},
  version = {{{version}}},
  note = {{{command}}},
}}
"""


def paper(report: Report, folder: str | os.PathLike[str]) -> list[Path]:
    """Figures as PDF with fonts embedded (and PGF where LaTeX is installed), tables as CSV, the
    versions of every package, the parameters and the citation. Returns the files.
    """
    import matplotlib

    folder, written = Path(folder), []
    kinds = [".pdf", ".pgf"] if shutil.which("xelatex") else [".pdf"]
    with matplotlib.rc_context({"pdf.fonttype": 42}):
        for i, picture in enumerate((p for part in report.parts() for p in part.figures), 1):
            name = f"figure{i}-{_slug(picture.title)}"
            written += [_put(folder / f"{name}{kind}", picture.encode(kind)) for kind in kinds]
            written.append(_put(folder / f"{name}.txt", f"{picture.caption}\n".encode()))
    for i, table in enumerate((table for part in report.parts() for table in part.tables), 1):
        written.append(_put(folder / f"table{i}-{_slug(table.title)}.csv", table.to_csv().encode()))
    packages = sorted({f"{d.metadata['Name']}=={d.version}" for d in distributions()})
    about = f"# Python {sys.version.split()[0]} on {sys.platform}\n" + "\n".join(packages) + "\n"
    settings = "".join(f"{name} = {value!r}\n" for name, value in report.params.items())
    bib = _BIB.format(version=__version__, command=report.command or "cynosure")
    texts = {"requirements.txt": about, "CITATION.bib": bib}
    texts["parameters.txt"] = f"{report.command}\n{settings}"
    return written + [_put(folder / name, text.encode()) for name, text in texts.items()]
