"""The site: `make docs` builds docs/_build/html, and needs no network."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS))

import _site  # noqa: E402
import _theory  # noqa: E402
import cynosure  # noqa: E402
from cynosure.web import static_page  # noqa: E402

project = "Cynosure"
author = "The Cynosure authors"
copyright = "the Cynosure authors, Apache-2.0"
release = version = cynosure.__version__

extensions = ["myst_nb", "sphinx_design", "sphinx_copybutton"]
exclude_patterns = ["_build", "_static", "mathematics.md", "README.md"]
myst_enable_extensions = ["colon_fence", "deflist", "attrs_inline", "attrs_block"]
myst_heading_anchors = 3
myst_links_external_new_tab = False
os.environ["TQDM_DISABLE"] = "1"  # no progress bars on executed pages
nb_execution_mode = os.environ.get("CYNOSURE_DOCS_NOTEBOOKS", "cache")
nb_execution_cache_path = str(DOCS / "_build" / ".notebooks" / _site.state_of_the_package())
nb_execution_in_temp = True
nb_execution_timeout = 300
nb_execution_raise_on_error = True
nb_merge_streams = True
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
copybutton_exclude = ".linenos, .gp, .go"
python_maximum_signature_line_length = 80
python_use_unqualified_type_names = True
pygments_style = "tango"
suppress_warnings = ["misc.highlighting_failure"]

html_theme = "pydata_sphinx_theme"
html_title = "Cynosure"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_search_scorer = str(DOCS / "_static" / "scorer.js")
html_sidebars: dict[str, list[str]] = {name: [] for name in ("index", "papers", "gallery")}
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_theme_options: dict[str, Any] = {
    "logo": {"text": "Cynosure"},
    "navbar_align": "left",
    "navbar_end": ["theme-switcher", "navbar-icon-links"],
    "header_links_before_dropdown": 8,
    "show_toc_level": 2,
    "show_nav_level": 1,
    "navigation_with_keys": False,
    "back_to_top_button": True,
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "tango",
    "pygments_dark_style": "github-dark",
    "search_bar_text": "Search these pages",
}
# Pages and pictures of the repository that stand outside docs/, by where a link on a page leads.
OUTSIDE = "https://github.com/cynosure-attention/cynosure/blob/main/"


def _links(app: Any, name: str, source: list[str]) -> None:
    """Links as GitHub needs them become links as the site needs them; test_docs finds dead ones."""
    text = _theory.links(source[0])

    def outside(found: re.Match[str]) -> str:
        target = (DOCS / name).parent.joinpath(found[1]).resolve()
        if DOCS in target.parents:
            return found[0]
        return f"]({OUTSIDE}{target.relative_to(DOCS.parent)}{found[2] or ''})"

    source[0] = re.sub(r"\]\((\.\./[\w./-]+)(#[\w-]+)?\)", outside, text)


def play(app: Any, error: Exception | None) -> None:
    """Play and the story as static files of the site, which the home page shows."""
    if error is None and app.builder.format == "html":
        folder = Path(app.outdir, "_static", "play")
        shutil.rmtree(folder, ignore_errors=True)
        static_page.export(folder)


def setup(app: Any) -> None:
    _site.write(DOCS)
    app.connect("build-finished", play)
    app.connect("source-read", _links)
