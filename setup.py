"""The description of the package on an index: README.md with absolute links.

README.md names files beside it, so that its links and pictures work in any checkout. An index has
no other file. Everything else about the package is in pyproject.toml.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).resolve().parent
RELATIVE = r"\[([^\]]*)\]\((?![a-z]+:|#)"


def description() -> str:
    """README.md, with pictures from the raw files and links to the pages of the repository."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    home = project["urls"]["Source"]
    text = (ROOT / "README.md").read_text("utf-8")
    text = re.sub("!" + RELATIVE, rf"![\1]({home}/raw/main/", text)
    return re.sub(RELATIVE, rf"[\1]({home}/blob/main/", text)


if __name__ == "__main__":
    setup(long_description=description(), long_description_content_type="text/markdown")
