"""The documentation cannot drift: blocks run, links lead somewhere, generated pages are fresh."""

from __future__ import annotations

import ast
import doctest
import importlib.util
import json
import re
import shlex
from pathlib import Path

import pytest

import _gallery as gallery
import generate
import page_movie
from _markdown import anchors, prose
from _reference import commands as all_commands

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.glob("*.md"))]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
NEEDS = re.compile(r"<!-- needs: (\w+) -->\n$")  # before a block that wants an optional package
LABEL = r"[A-F]\d+[a-z]?"


def read(page):
    return page.read_text(encoding="utf-8")


def names(pages):
    return [str(page.relative_to(ROOT)) for page in pages]


# --- what judges ---------------------------------------------------------------------------------


def python_blocks(text):
    """(line, source) of every fenced Python block whose optional package is there."""

    def wanted(m):
        extra = NEEDS.search(text[: m.start()])
        return m[1] == "python" and (not extra or importlib.util.find_spec(extra[1]) is not None)

    return [(text[: m.start()].count("\n") + 2, m[2]) for m in FENCE.finditer(text) if wanted(m)]


def run_blocks(text, name):
    """Run the blocks of a page in one namespace; >>> blocks must print what they show."""
    space = {"__name__": "page"}
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    for line, source in python_blocks(text):
        if ">>>" not in source:
            exec(compile("\n" * (line - 1) + source, name, "exec", dont_inherit=True), space)
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


def wrong_commands(text, known):
    """Shown `cynosure ...` and `make ...` lines that name no such command, option or target."""
    targets = set(re.findall(r"^([a-z-]+):", read(ROOT / "Makefile"), re.M))
    wrong = []
    for line in shell_lines(text):
        words = shlex.split(line, comments=True) if line.startswith(("cynosure ", "make ")) else []
        if words[:1] == ["make"]:
            wrong += [line] if words[1] not in targets else []
        elif words and not words[1].startswith("-"):
            path = next((p for p in known if words[1 : 1 + len(p.split())] == p.split()), None)
            options = [w.split("=")[0] for w in words if re.match(r"--?[A-Za-z]", w)]
            if path is None or any(o not in known[path] for o in options):
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
    monkeypatch.chdir(tmp_path)
    run_blocks(read(page), page.name)


@pytest.mark.parametrize("page", PAGES, ids=names(PAGES))
def test_links_lead_somewhere(page):
    assert dead_links(page, read(page)) == []


@pytest.mark.parametrize("page", PAGES, ids=names(PAGES))
def test_commands_exist(page):
    assert wrong_commands(read(page), commands()) == []


def test_generated_pages_are_fresh():
    assert generate.stale() == [], "run `make docs`"


def test_every_public_name_is_in_the_reference():
    import cynosure

    found = set(headings(read(DOCS / "api.md")))
    public = {name for name in cynosure.__all__ if not name.startswith("__")}
    assert public <= found and not [n for n in found - public if n != "Python interface"]


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
    from cynosure import THEOREMS

    known = sections(read(DOCS / "mathematics.md"))
    assert set(THEOREMS) <= known
    told = {*range(1, 35), *range(39, 42)}
    assert {f"B{i}" for i in told} | {f"C{i}" for i in range(1, 12)} <= known


def test_the_picture_is_small():
    picture = DOCS / "images" / "figure2.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_size < 400_000


# --- the gallery ---------------------------------------------------------------------------------

NEEDS_DATA = {"sentiment_paper", "sentiment_placed", "sentiment_ablation", "sentiment_faithfulness"}


def words_in_code():
    """All strings of the experiments and of what draws for them, as one text."""
    package = ROOT / "src" / "cynosure"
    sources = [*(package / "experiments").rglob("*.py"), *(package / "drawing").rglob("*.py")]
    trees = [ast.walk(ast.parse(read(path))) for path in sources]
    found = (node.value for tree in trees for node in tree if isinstance(node, ast.Constant))
    return "\n".join(value for value in found if isinstance(value, str))


def forgotten_words(caption, words):
    """The parts of a caption, between numbers and stops, that the code does not say any more."""
    parts = (part.strip() for part in re.split(r"[\d.:;,()]+", caption))
    return [part for part in parts if len(part) > 22 and part not in words]


def gallery_faults(shown, folder):
    """What is missing, stale or too large in a gallery."""
    from cynosure.experiments import available

    experiments, faults, words = available(), [], words_in_code()
    for name in experiments:
        picture = folder / f"{name}.png"
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
        for part in forgotten_words(shown[name]["figure"]["caption"], words):
            faults.append(f"{name}: the caption says {part!r}, the code does not")
        if "FAIL" in shown[name]["verdict"]:
            faults.append(f"{name}: a check failed")
        if not picture.exists() or not picture.read_bytes().startswith(b"\x89PNG"):
            faults.append(f"{name}: no picture")
    faults += [f"{name}: no such experiment" for name in shown if name not in experiments]
    pictures = list(folder.glob("*.png"))
    faults += [f"{p.stem}: a picture of nothing" for p in pictures if p.stem not in shown]
    faults += [f"{p.stem}: too large" for p in pictures if p.stat().st_size > 100_000]
    return faults


def test_the_gallery_shows_full_runs_of_every_experiment():
    again = "run it in full, then python docs/generate.py --gallery FOLDER"
    assert gallery_faults(gallery.stored(), DOCS / "gallery") == [], again


def test_images_of_the_repository_are_small():
    images = [p for p in DOCS.rglob("*") if p.suffix in (".png", ".gif", ".svg", ".jpg")]
    assert len(images) > 30 and sum(p.stat().st_size for p in images) < 4_000_000


def test_every_experiment_is_on_the_page_once():
    from cynosure.experiments import available

    page = gallery.page(gallery.stored())
    entries = re.findall(r"^### (\w+)$", page, re.M)
    assert sorted(entries) == sorted(available())
    for name in available():
        assert f"`cynosure run {name}" in page


def test_the_readme_opens_as_promised():
    text = read(ROOT / "README.md")
    first = text[: text.index("## ")]
    assert "![" in first and "make demo" in first and "make test" in first
    assert "pip install" in first
    starts = [[x for x in m[2].splitlines() if x] for m in FENCE.finditer(first)][1:]
    assert [len(lines) for lines in starts] == [6, 6, 6]


def test_the_readme_quotes_numbers_of_today():
    """The cheap ones; the others come from benchmarks/certified_limits.py."""
    import cynosure as cy

    text = read(ROOT / "README.md")
    starts = [cy.configurations.figure2(case) for case in (1, 2, 3, 4)]
    runs = [cy.simulate(cy.PureAttention(alpha=0.5), z0, layers=30) for z0 in starts]
    hardmax = [f"B{i}" for i in range(1, 17)]
    checks = [c for run in runs for c in cy.check(run, only=hardmax)]
    apply, hold = sum(c.applies for c in checks), sum(bool(c.holds) for c in checks)
    assert f"{apply} checks apply, {hold} hold; the other {len(checks) - apply} say" in text
    tenth, name = cy.PureAttention(alpha="1/10"), "G4"
    exact = cy.limit(tenth, cy.configurations.golden_exact(name), exact=True)
    rounded = cy.limit(tenth, cy.configurations.golden(name))
    assert f"leads from layer {exact.born[4]} on (from {rounded.born[4]} on if" in text


# --- the judges are judged -----------------------------------------------------------------------


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
    page = DOCS / "quickstart.md"
    text = "# One two\n[a](cli.md) [b](nowhere.md) [c](#one-two) [d](#three) ![e](images/no.png)"
    text += " [f](cli.md#command-line) [g](cli.md#no-such) [h](https://example.org) `[i](code)`"
    dead = ["nowhere.md", "#three", "images/no.png", "cli.md#no-such"]
    assert dead_links(page, text) == dead


def test_a_wrong_command_is_noticed():
    known = commands()
    text = "```sh\ncynosure limit t.csv --exact  # fine\ncynosure limit t.csv --wrong\n```\n"
    text += "`cynosure fly` `make demo` `make coffee` `cynosure --version` `cynosure -q info`"
    assert wrong_commands(text, known) == [
        "cynosure limit t.csv --wrong",
        "cynosure fly",
        "make coffee",
    ]


def test_a_stale_page_is_noticed(tmp_path):
    for name, text in generate.pages().items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert generate.stale(tmp_path) == []
    with (tmp_path / "cli.md").open("a", encoding="utf-8") as page:
        page.write("more\n")
    (tmp_path / "api.md").unlink()
    assert generate.stale(tmp_path) == ["cli.md", "api.md"]


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
    from cynosure.experiments.hardmax import figure1

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
    from cynosure.experiments import available

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
    (folder / "gallery.json").unlink()
    asked.clear()
    assert set(available()) - set(gallery.run_stale(runs, folder)) == NEEDS_DATA


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
