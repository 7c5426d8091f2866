"""The site: it builds without a warning, every page opens alone, links lead somewhere."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from html import unescape
from pathlib import Path
from urllib.parse import unquote

import pytest

import _theory

NEEDED = ("sphinx", "myst_nb", "pydata_sphinx_theme", "sphinx_design", "sphinx_copybutton")
MISSING = [name for name in (*NEEDED, "numpydoc") if importlib.util.find_spec(name) is None]
pytestmark = [
    pytest.mark.skipif(bool(MISSING), reason=f"the site needs {', '.join(MISSING)}"),
    pytest.mark.xdist_group("site"),
]
ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
# What a newcomer types, and what stands first.
SEARCHES = {
    "install": "Installation",
    "simulate": "cynosure.simulate",
    "gpu": "Use a GPU",
    "save run": "Save, load and export runs",
    "own dynamics": "Your own attention and dynamics",
    "own theorem": "Your own theorem as a check",
    "label csv": "Train on a CSV file, label another",
    "sweep": "cynosure.sweep",
    "exact fractions": "Floats, ties and exact arithmetic",
    "cite": "Citing",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, built anew from the sources; tutorials are run by test_docs and by `make docs`."""
    folder = tmp_path_factory.mktemp("site")
    kept = shutil.ignore_patterns("_build", "__pycache__")
    shutil.copytree(DOCS, folder / "docs", ignore=kept)
    for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"):
        shutil.copy(ROOT / name, folder / name)
    shutil.copytree(ROOT / "benchmarks", folder / "benchmarks", ignore=kept)
    out = folder / "html"
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html"]
    paths = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]))
    done = subprocess.run(
        [*command, str(folder / "docs"), str(out)],
        capture_output=True,
        text=True,
        env=os.environ | {"CYNOSURE_DOCS_NOTEBOOKS": "off", "PYTHONPATH": paths},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return out


def test_serve_names_the_site_of_a_checkout(tmp_path, monkeypatch):
    from cynosure.cli import serving

    monkeypatch.setattr(serving, "__file__", str(tmp_path / "src/cynosure/cli/serving.py"))
    assert serving.built_site() is None
    page = tmp_path / "docs/_build/html/index.html"
    page.parent.mkdir(parents=True)
    page.touch()
    assert serving.built_site() == page


def test_the_home_page_leads_to_play_as_files(site):
    home, play = site / "index.html", "_static/play/index.html"
    assert f'href="{play}"' in home.read_text("utf-8")
    assert "<html data-local " in (site / play).read_text("utf-8")
    kept = json.loads((site / play).with_name("configurations.json").read_text("utf-8"))
    assert len(kept["tokens"]["gaussian?n=40&seed=2"]["tokens"]) == 40
    assert (site / play).with_name("hardmax.js").exists()


def addresses(html):
    """What a page links to or loads, and the places in it that can be linked to."""
    targets = re.findall(r'(?:href|src)="([^"]*)"', html)
    return [unescape(t) for t in targets], set(re.findall(r'\bid="([^"]*)"', html))


def dead(site):
    """(page, address) of every link inside the site that leads nowhere."""
    found = [p for p in sorted(site.rglob("*.html")) if "_static" not in p.parts]
    pages = {p: addresses(p.read_text(encoding="utf-8")) for p in found}
    out = []
    for page, (targets, _) in pages.items():
        for target in targets:
            if re.match(r"[a-z+]+:|//", target) or target in ("", "#"):
                continue
            file, _, anchor = unquote(target).partition("#")
            goal = (page.parent / file.partition("?")[0]).resolve() if file else page
            there = goal.exists() and (not anchor or goal not in pages or anchor in pages[goal][1])
            if not there:
                out.append((str(page.relative_to(site)), target))
    return out


def test_every_link_inside_the_site_leads_somewhere(site):
    assert len(list(site.rglob("*.html"))) > 40
    assert dead(site) == []


def test_a_dead_link_is_noticed(tmp_path):
    (tmp_path / "a.html").write_text('<p id="x"><a href="b.html#y"></a><a href="#x"></a>')
    (tmp_path / "b.html").write_text('<a href="a.html#x"></a><a href="c.html"></a>')
    assert dead(tmp_path) == [("a.html", "b.html#y"), ("b.html", "c.html")]


def test_no_page_names_a_file_from_elsewhere(site):
    loaded = re.compile(r'<(?:script|img|link)\b[^>]*(?:src|href)="(?:https?:)?//[^"]*"')
    pages = {p.name: loaded.findall(p.read_text(encoding="utf-8")) for p in site.rglob("*.html")}
    assert {name: found for name, found in pages.items() if found} == {}


def test_pages_open_and_search_finds(site):
    """In Chromium, from the disk: no error, nothing asked of a server, nothing wider than it."""
    sync = pytest.importorskip("playwright.sync_api")
    from test_browser import found_browser

    if found_browser() is None:
        pytest.skip("no Chromium found")
    with sync.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=found_browser(), args=["--no-sandbox"])
        page = browser.new_context(viewport={"width": 390, "height": 800}).new_page()
        asked, errors, wide = [], [], []
        page.on("request", lambda r: asked.append(r.url) if r.url[:5] == "http:" else None)
        page.on("pageerror", lambda e: errors.append(str(e)))
        for path in (p for p in sorted(site.rglob("*.html")) if "_static" not in p.parts):
            page.goto(path.as_uri())
            if page.evaluate("document.documentElement.scrollWidth") > 400:
                wide.append(path.name)
        for word, first in SEARCHES.items():
            page.goto((site / "search.html").as_uri() + f"?q={word}")
            page.wait_for_selector("ul.search li a", timeout=60_000)
            assert page.locator("ul.search > li > a").first.inner_text().strip() == first, word
        browser.close()
    assert asked == [] and errors == [] and wide == []


def test_every_public_name_is_in_the_reference(site):
    import cynosure

    text = "".join(
        p.read_text(encoding="utf-8") for p in (site / "reference/python").glob("*.html")
    )
    functions = {f"cynosure.{n}" for n in cynosure.__all__ if n[0] != "_"}
    import types

    named = {n for n in functions if not isinstance(getattr(cynosure, n[9:]), types.ModuleType)}
    assert [n for n in sorted(named) if f'id="{n}"' not in text] == []


def test_every_statement_has_an_anchor(site):
    from cynosure.theorems import THEOREMS

    found = {i for p in (site / "theory").glob("*.html") for i in addresses(p.read_text())[1]}
    assert {name.lower() for name in THEOREMS} <= found and {"a1", "c5", "f1"} <= found


def test_a_chapter_becomes_a_page():
    source = (
        "# The mathematics\nintro\n\n## Symbols\nz\n# B. Statements\nall\n## Hardmax\n### B1. One\n"
    )
    source += "*Proof.* Yes. ∎\nSee [B1](#b1-one).\n# F. New things\n### F9. Two\n|a|\n"
    made = {c.file: _theory.page(c) for c in _theory.chapters(source)}
    assert set(made) == {"symbols", "hardmax", "new-things"}
    assert "(b1)=\n## B1. One" in made["hardmax"] and "](#b1)" in made["hardmax"]
    assert "{dropdown} Proof" in made["hardmax"] and "`proved here`" in made["hardmax"]
