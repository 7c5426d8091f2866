"""The documentation cannot drift: blocks run, links lead somewhere, generated pages are fresh."""

from __future__ import annotations

import ast
import contextlib
import doctest
import functools
import importlib.util
import inspect
import io
import json
import re
import shlex
from functools import cache
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import pytest

import _gallery as gallery
import generate
import page_movie
from _markdown import anchors, prose
from _reference import commands as all_commands

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
WRITTEN = ("_build", "theory", "python")  # folders of pages that are read off the package
GENERATED = {
    "claims.md",
    "cli.md",
    "http.md",
    "studies.md",
    "gallery.md",
    "changelog.md",
    "contributing.md",
}
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *(
        page
        for page in sorted(DOCS.rglob("*.md"))
        if page.name not in GENERATED and not set(WRITTEN) & set(page.relative_to(DOCS).parts)
    ),
]
FENCE = re.compile(r"^```(\w*|\{code-cell\})\n(?::[\w-]+:.*\n)*(.*?)^```$", re.M | re.S)
NEEDS = re.compile(r"<!-- needs: (\w+) -->\n$")  # before a block that wants an optional package
PAGE_NEEDS = re.compile(r"^<!-- this page needs: (\w+) -->$", re.M)
LABEL = r"[A-F]\d+[a-z]?"


def read(page):
    return page.read_text(encoding="utf-8")


def names(pages):
    return [str(page.relative_to(ROOT)) for page in pages]


# --- what judges ---------------------------------------------------------------------------------


class Block(NamedTuple):
    """A Python block: its first line on the page, its source, and the output shown below it."""

    line: int
    source: str
    output: str | None


def python_blocks(text):
    """Every fenced Python block whose optional package is there."""
    found, out = list(FENCE.finditer(text)), []
    whole = PAGE_NEEDS.search(text)
    if whole and importlib.util.find_spec(whole[1]) is None:
        return []
    for block, below in zip(found, [*found[1:], None]):
        extra = NEEDS.search(text[: block.start()])
        if block[1] not in ("python", "{code-cell}") or (
            extra and importlib.util.find_spec(extra[1]) is None
        ):
            continue
        shown = below and below[1] == "output" and not text[block.end() : below.start()].strip()
        line = text[: block.start()].count("\n") + 2
        out.append(Block(line, block[2], below[2] if shown else None))
    return out


def run_blocks(text, name):
    """Run the blocks of a page in one namespace; what they print is what the page shows."""
    space = {"__name__": "page"}
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    for line, source, output in python_blocks(text):
        if ">>>" not in source:
            code = compile("\n" * (line - 1) + source, name, "exec", dont_inherit=True)
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(code, space)
            if output is not None:
                same = doctest.OutputChecker().check_output(output, printed.getvalue(), flags)
                assert same, f"{name}:{line} printed\n{printed.getvalue()}\nnot\n{output}"
            continue
        test = doctest.DocTestParser().get_doctest(source, space, name, name, line)
        test.globs = space  # get_doctest copies
        said = []
        result = doctest.DocTestRunner(verbose=False, optionflags=flags).run(
            test, out=said.append, clear_globs=False
        )
        assert result.failed == 0, "".join(said)


def headings(text):
    bare = FENCE.sub("", text)
    return re.findall(r"^#+ (.+)$", bare, re.M)


def dead_links(page, text):
    """Relative links and images of a page that lead nowhere, anchors included."""
    bare = re.sub(r"`[^`\n]*`", "", FENCE.sub("", text))
    dead = []
    for target in re.findall(r"\]\(([^)\s]+)\)", bare):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        goal = page.parent / file if file else page
        there = (
            text if goal == page else read(goal) if goal.suffix == ".md" and goal.exists() else ""
        )
        if goal.name in GENERATED or set(WRITTEN) & set(goal.parts):
            continue  # Sphinx follows these when it builds the site
        missing = goal != page and not goal.exists()
        if missing or (anchor and anchor not in anchors(headings(there))):
            dead.append(target)
    return dead


def shell_lines(text):
    """Commands shown in sh blocks and in inline code, without comments."""
    fenced = [
        line for m in FENCE.finditer(text) if m[1] in ("sh", "") for line in m[2].splitlines()
    ]
    inline = re.findall(r"`([^`\n]+)`", FENCE.sub("", text))
    return [line.split("  #")[0].strip() for line in [*fenced, *inline]]


@functools.cache
def commands():
    """Command path -> its options, for every command of the application."""
    from typer.main import get_command

    from cynosure.cli import app

    group = get_command(app)
    common = {option for p in group.params for option in p.opts} | {"-h", "--help"}
    return {
        path: common | {o for p in command.params for o in (*p.opts, *p.secondary_opts)}
        for path, command in all_commands(group)
    }


@functools.cache
def runnable():
    """What `cynosure run` and `cynosure sweep` take."""
    from cynosure import catalogue
    from cynosure.sweeps.spec import named

    others = [alias for of in catalogue.aliases().values() for alias in of]
    return {"run": {*catalogue.studies(), *others, "NAME"}, "sweep": {*named(), "NAME"}}


def wrong_commands(text, known):
    """Shown `cynosure ...` and `make ...` lines with an unknown command, option, name or target."""
    named = runnable()
    targets = set(re.findall(r"^([a-z-]+):", read(ROOT / "Makefile"), re.M))
    wrong = []
    for line in shell_lines(text):
        words = shlex.split(line, comments=True) if line.startswith(("cynosure ", "make ")) else []
        if words[:1] == ["make"]:
            wrong += [line] if words[1] not in targets else []
        elif words and not words[1].startswith("-"):
            path = next((p for p in known if words[1 : 1 + len(p.split())] == p.split()), None)
            options = [w.split("=")[0] for w in words if re.match(r"--?[A-Za-z]", w)]
            name = words[2] if len(words) > 2 and words[1] in named else "--"
            there = name.startswith("-") or name.endswith((".py", ".toml"))
            there = there or name in named[words[1]]
            if path is None or any(o not in known[path] for o in options) or not there:
                wrong.append(line)
    return wrong


def cited_labels(text):
    """Labels after the page's name: "docs/mathematics.md C5, C6", "docs/mathematics.md B17-B34"."""
    lists = re.findall(rf"docs/mathematics\.md ((?:{LABEL}(?:, | and |-|–)?)+)", text)
    return {label for found in lists for label in re.findall(LABEL, found)}


def sections(text):
    return {m[1] for h in headings(text) if (m := re.match(rf"({LABEL})\. ", h))}


# --- the pages -----------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=names(PAGES))
def test_python_blocks_run(page, tmp_path, monkeypatch):
    from cynosure.theorems import THEOREMS

    monkeypatch.chdir(tmp_path)
    with mock.patch.dict(THEOREMS):  # pages add statements of their own
        run_blocks(read(page), page.name)


@pytest.mark.parametrize("page", PAGES, ids=names(PAGES))
def test_links_lead_somewhere(page):
    assert dead_links(page, read(page)) == []


@pytest.mark.parametrize("page", PAGES, ids=names(PAGES))
def test_commands_exist(page):
    assert wrong_commands(read(page), commands()) == []


def test_cited_labels_exist():
    known = sections(read(DOCS / "mathematics.md"))
    cited = {
        (label, str(path.relative_to(ROOT)))
        for path in (ROOT / "src").rglob("*.py")
        for label in cited_labels(read(path))
    }
    assert len(cited) > 10
    assert {(label, where) for label, where in cited if label not in known} == set()


def test_every_theorem_has_a_section():
    from cynosure.theorems import THEOREMS

    known = sections(read(DOCS / "mathematics.md"))
    assert set(THEOREMS) <= known
    told = {*range(1, 35), *range(39, 42)}
    assert {f"B{i}" for i in told} | {f"C{i}" for i in range(1, 12)} <= known


def test_the_picture_is_small():
    picture = DOCS / "images" / "figure2.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_size < 400_000


# --- the reference -------------------------------------------------------------------------------


def front_names():
    import cynosure as cy

    found = {name: getattr(cy, name) for name in cy.__all__ if name[0] != "_"}
    return {
        name: thing
        for name, thing in found.items()
        if callable(thing) and not inspect.ismodule(thing)  # a module answers a call with advice
    }


def missing_sections(thing):
    """What the docstring of a public name lacks of Parameters, Returns and Examples."""
    from numpydoc.docscrape import NumpyDocString

    said = NumpyDocString(inspect.getdoc(thing) or "")
    wanted = ("Parameters", *(() if inspect.isclass(thing) else ("Returns",)), "Examples")
    lacks = [section for section in wanted if not said[section]]
    told = {n.strip(" *") for entry in said["Parameters"] for n in entry.name.split(",")}
    own = inspect.signature(thing).parameters
    return lacks + [name for name in own if name not in told and name != "self"]


@pytest.mark.parametrize("name", sorted(front_names()))
def test_a_public_name_says_what_it_takes_and_gives(name):
    pytest.importorskip("numpydoc")
    assert missing_sections(front_names()[name]) == []


def test_a_docstring_without_a_parameter_is_noticed():
    pytest.importorskip("numpydoc")

    def half(x, y):
        """Adds.

        Parameters
        ----------
        x
            A number.
        """

    assert missing_sections(half) == ["Returns", "Examples", "y"]


@pytest.mark.parametrize("name", sorted(front_names()))
def test_the_example_of_a_public_name_runs(name, tmp_path, monkeypatch):
    if name in ("sweep", "open_sweep", "observe"):
        pytest.importorskip("zarr")
    monkeypatch.chdir(tmp_path)
    thing = front_names()[name]
    home = vars(importlib.import_module(thing.__module__))
    test = doctest.DocTestParser().get_doctest(inspect.getdoc(thing), dict(home), name, None, None)
    said, flags = [], doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    doctest.DocTestRunner(optionflags=flags).run(test, out=said.append)
    assert test.examples and said == [], "".join(said)


# --- the gallery ---------------------------------------------------------------------------------

NEEDS_DATA = {"sentiment_paper", "sentiment_placed", "sentiment_ablation", "sentiment_faithfulness"}


@cache
def words_in_code():
    """All strings of the experiments and of what draws for them, as one text."""
    folders = ("studies", "src/cynosure/figures", "src/cynosure/study", "src/cynosure/drawing")
    sources = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    trees = [ast.walk(ast.parse(read(path))) for path in sources]
    found = (node.value for tree in trees for node in tree if isinstance(node, ast.Constant))
    # A caption of several lines is written with the indentation of its code.
    return "\n".join(" ".join(value.split()) for value in found if isinstance(value, str))


def forgotten_words(caption, words):
    """The parts of a caption, between numbers and stops, that the code does not say any more."""
    parts = (part.strip() for part in re.split(r"[\d.:;,()]+", caption))
    return [part for part in parts if len(part) > 22 and part not in words]


def gallery_faults(shown, folder):
    """What is missing, stale or too large in a gallery."""
    from cynosure.catalogue import available

    experiments, faults, words = available(), [], words_in_code()
    for name in experiments:
        if name not in shown:
            hidden = name in NEEDS_DATA or name in gallery.TO_BE_RUN
            faults += [] if hidden else [f"{name}: not shown"]
            continue
        if name in gallery.TO_BE_RUN:
            faults.append(f"{name}: shown, and said to be run again")
        if shown[name]["params"] != gallery.own_params(experiments[name]):
            faults.append(f"{name}: parameters have changed since")
        if shown[name]["title"] != experiments[name].TITLE:
            faults.append(f"{name}: has another title now")
        for one in (shown[name], *shown[name].get("more", ())):
            for part in forgotten_words(one["figure"]["caption"], words):
                faults.append(f"{name}: the caption says {part!r}, the code does not")
        if "FAIL" in shown[name]["verdict"]:
            faults.append(f"{name}: a check failed")
        for stem in gallery.pictures_of(name, shown[name]):
            picture = folder / f"{stem}.png"
            if not picture.exists() or not picture.read_bytes().startswith(b"\x89PNG"):
                faults.append(f"{name}: no picture")
    faults += [f"{name}: no such experiment" for name in shown if name not in experiments]
    pictures = list(folder.glob("*.png"))
    known = {stem for name, one in shown.items() for stem in gallery.pictures_of(name, one)}
    faults += [f"{p.stem}: a picture of nothing" for p in pictures if p.stem not in known]
    faults += [f"{p.stem}: too large" for p in pictures if p.stat().st_size > 100_000]
    return faults


def test_the_gallery_shows_full_runs_of_every_experiment():
    again = "run it in full, then python docs/generate.py --gallery FOLDER"
    assert gallery_faults(gallery.stored(), DOCS / "gallery") == [], again


def test_images_of_the_repository_are_small():
    found = [p for p in DOCS.rglob("*") if "_build" not in p.parts]
    images = [p for p in found if p.suffix in (".png", ".gif", ".svg", ".jpg")]
    assert len(images) > 30 and sum(p.stat().st_size for p in images) < 4_000_000


def test_every_experiment_is_on_the_page_once():
    from cynosure.catalogue import available

    page = gallery.page(gallery.stored())
    entries = re.findall(r"^### (\w+)$", page, re.M)
    assert sorted(entries) == sorted(available())
    for name in available():
        assert f"`cynosure run {name}" in page


def test_the_readme_takes_two_minutes():
    text = read(ROOT / "README.md")
    first = text[: text.index("\n## ")]
    assert "![" in first and "make demo" in first and "pip install" in first
    assert "make test" in text
    lines = text.splitlines()
    assert len(lines) <= 120 and max(map(len, lines)) <= 120
    blocks = [m for m in FENCE.finditer(text) if m[1] == "python"]
    shown = [m for m in FENCE.finditer(text) if m[1] == "output"]
    assert len(blocks) == len(shown) == 3


def test_the_changelog_is_short():
    assert len(read(ROOT / "CHANGELOG.md").split()) <= 600


def test_the_commands_of_the_readme_run(tmp_path, monkeypatch, capsys):
    """All but `serve`, which waits, and `run`, whose figure has tests of its own."""
    from cynosure.cli import main

    monkeypatch.chdir(tmp_path)
    (tmp_path / "tokens.csv").write_text("2,0\n0.2,1\n1.5,0.9\n0.1,0.1\n")
    lines = re.findall(r"^cynosure (?!serve|run)(.+)$", read(ROOT / "README.md"), re.M)
    said = {}
    for words in (shlex.split(line, comments=True) for line in lines):
        assert main(words) == 0, words
        said[words[0]] = "".join(capsys.readouterr())  # the answer, then what is said about it
    assert set(said) == {"simulate", "limit", "explain"}
    assert said["simulate"].startswith("token  leads ") and (tmp_path / "out.png").exists()
    assert "layer 61" in said["limit"] and "arithmetic: exact" in said["limit"]
    assert said["explain"].startswith("pos ")


def test_the_readme_says_when_the_late_leader_appears():
    import cynosure as cy

    exact = cy.limit(
        cy.PureAttention(alpha="1/10"), cy.configurations.golden_exact("G4"), exact=True
    )
    assert f"a leader that appears at layer {exact.born[4]}," in read(ROOT / "README.md")


# --- the judges are judged -----------------------------------------------------------------------


def test_output_that_differs_is_noticed():
    page = "```python\nprint(2, 'and more')\n```\n```output\n{}\n```\n"
    run_blocks(page.format("2 and ..."), "page")
    with pytest.raises(AssertionError, match=r"printed\n\s*2 and more"):
        run_blocks(page.format("3 and ..."), "page")


@pytest.mark.parametrize(
    "block",
    ["raise RuntimeError", "import no_such_module", ">>> 1 + 1\n3", "x = 1\nassert x == 2", "x ="],
)
def test_a_broken_block_is_noticed(block):
    text = f"text\n```python\ny = 1\n```\nmore\n```python\n{block}\n```\n"
    assert len(python_blocks(text)) == 2
    with pytest.raises(BaseException) as caught:
        run_blocks(text, "page")
    assert not isinstance(caught.value, KeyboardInterrupt)


def test_only_a_block_that_needs_a_missing_package_is_left_out():
    text = "<!-- needs: {} -->\n```python\nx = 1\n```\n\n```python\ny = 2\n```\n"
    assert len(python_blocks(text.format("no_such_package"))) == 1
    assert len(python_blocks(text.format("json"))) == 2


def test_blocks_share_a_namespace():
    run_blocks("```python\n>>> a = 2\n```\n\n```python\nassert a == 2\nb = 3\n```\n", "page")
    run_blocks("```python\nb = 3\n```\n```python\n>>> b\n3\n```\n", "page")


def test_a_dead_link_is_noticed():
    page = DOCS / "page.md"
    text = "# One two\n[a](index.md) [b](nowhere.md) [c](#one-two) [d](#three) ![e](images/no.png)"
    text += " [f](index.md#cynosure) [g](index.md#no-such) [h](https://example.org) `[i](code)`"
    dead = ["nowhere.md", "#three", "images/no.png", "index.md#no-such"]
    assert dead_links(page, text) == dead


def test_a_wrong_command_is_noticed():
    known = commands()
    text = "```sh\ncynosure limit t.csv --exact  # fine\ncynosure limit t.csv --wrong\n```\n"
    text += "`cynosure fly` `make demo` `make coffee` `cynosure --version` `cynosure -q info`"
    text += "`cynosure run 2305.05465/figure5` `cynosure run figure99` `cynosure sweep none`"
    assert wrong_commands(text, known) == [
        "cynosure limit t.csv --wrong",
        "cynosure fly",
        "make coffee",
        "cynosure run figure99",
        "cynosure sweep none",
    ]


def test_the_pictures_of_the_pages_are_drawn_by_code(tmp_path):
    drawn = generate.draw(tmp_path)
    stored = (DOCS / "images").glob("*.png")  # tokens.gif: the README's own lines, test_package
    filmed = {page_movie.name_of(*shot) for shot in page_movie.SHOTS}  # by a browser
    assert {path.name for path in drawn} | filmed == {path.name for path in stored}
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in drawn)


def test_a_stale_gallery_is_noticed(tmp_path):
    shown = {"figure1": gallery.stored()["figure1"]}
    (tmp_path / "figure1.png").write_bytes(b"\x89PNG")

    def found(**changes):
        return [f for f in gallery_faults({"figure1": shown["figure1"] | changes}, tmp_path)
                if f.startswith("figure1")]  # fmt: skip

    assert found() == []
    assert found(params=shown["figure1"]["params"] | {"seed": 99}) == [
        "figure1: parameters have changed since"
    ]
    assert found(title="Other") == ["figure1: has another title now"]
    assert found(verdict="1; FAILING: 1.") == ["figure1: a check failed"]
    (older,) = found(figure={"caption": "7 tokens, drawn as nobody draws them any more"})
    assert "drawn as nobody draws them any more" in older
    (tmp_path / "nobody.png").write_bytes(bytes(100_001))
    (tmp_path / "figure1.png").unlink()
    faults = gallery_faults(shown | {"gone": shown["figure1"]}, tmp_path)
    assert {"figure1: no picture", "gone: no such experiment", "figure2: not shown"} <= set(faults)
    assert {"nobody: a picture of nothing", "nobody: too large"} <= set(faults)
    assert not any("sentiment_paper" in fault for fault in faults)


def test_a_run_enters_the_gallery_and_a_quick_one_does_not(tmp_path, monkeypatch):
    from cynosure.cli import main
    from cynosure.figures import figure1

    monkeypatch.chdir(tmp_path)
    assert main(["-q", "run", "figure1", "--out", "runs/figure1"]) == 0
    said = gallery.update(tmp_path / "runs", tmp_path / "gallery")
    assert said == ["gallery: figure1"]
    (shown,) = gallery.stored(tmp_path / "gallery").values()
    assert shown["title"] == figure1.TITLE and shown["params"]["n"] == figure1.Params().n
    picture = (tmp_path / "gallery" / "figure1.png").read_bytes()
    assert picture.startswith(b"\x89PNG") and len(picture) <= gallery.LARGEST
    page = gallery.page({"figure1": shown})
    assert "![" in page and shown["text"].split(".")[0] in page and str(tmp_path) not in page
    args = ["-q", "run", "figure1", "--set", "seed=9", "--out", "runs/figure1", "--force"]
    assert main(args) == 0
    (said,) = gallery.update(tmp_path / "runs", tmp_path / "gallery")
    assert "LEFT AS IT WAS" in said and "seed" in said
    assert gallery.stored(tmp_path / "gallery")["figure1"] == shown


def test_only_what_is_stale_is_run_for_the_gallery(tmp_path, monkeypatch):
    from cynosure.catalogue import available

    runs, folder = tmp_path / "runs", tmp_path / "gallery"
    asked = []
    monkeypatch.setattr("cynosure.cli.main", lambda args: asked.append(args) or 0)
    fresh = {name: {"params": gallery.own_params(module)} for name, module in available().items()}
    del fresh["basins"]
    fresh["figure1"]["params"]["seed"] = -1
    folder.mkdir()
    (folder / "gallery.json").write_text(json.dumps(fresh))
    (runs / "figure1").mkdir(parents=True)
    (runs / "figure1" / "report.html").write_text("an earlier one")
    assert gallery.run_stale(runs, folder) == ["basins", "figure1"]
    assert asked == [
        ["-q", "run", "basins", "--out", str(runs / "basins")],
        ["-q", "run", "figure1", "--out", str(runs / "figure1"), "--force"],
    ]
    spent = [json.loads((runs / name / "time.json").read_text()) for name in ("basins", "figure1")]
    assert [set(x) for x in spent] == [{"full"}, {"full"}] and min(x["full"] for x in spent) >= 0
    (folder / "gallery.json").unlink()
    asked.clear()
    assert set(available()) - set(gallery.run_stale(runs, folder)) == NEEDS_DATA


def test_the_gallery_says_how_long_a_study_takes(tmp_path):
    spent = {"long": {"full": 180.0, "quick": 2.0}, "short": {"quick": 0.2}}
    (tmp_path / "times.json").write_text(json.dumps(spent))
    told = [gallery._lasting(name, tmp_path) for name in ("long", "short", "unknown")]
    assert told == [
        " · 3 min of processor time",
        " · 1 s of processor time with `--quick`",
        "",
    ]


def test_labels_are_found():
    assert cited_labels("(docs/mathematics.md C5, C6 and B17-B34) docs/mathematics.md A1. C9") == {
        "C5",
        "C6",
        "B17",
        "B34",
        "A1",
    }
    assert sections("### C7b. Leaders\n### C8. Arithmetic\n## Hardmax") == {"C7b", "C8"}


def test_docstring_text_is_safe_in_markdown():
    assert prose("<A z_i, z_j> of (*b, n) in `<code>*`") == (
        "&lt;A z_i, z_j> of (\\*b, n) in `<code>*`"
    )
    assert prose("    <kept>") == "    <kept>"
    links = anchors(["Limit", "limit", "C8. Arithmetic"])
    assert links == ["limit", "limit-1", "c8-arithmetic"]
