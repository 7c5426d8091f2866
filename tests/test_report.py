"""Reports: one page that needs nothing, JSON without NaN, tables that can be read back."""

from __future__ import annotations

import csv
import dataclasses
import json
import re
from fractions import Fraction
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from cynosure.drawing.page import page
from cynosure.drawing.report import Comparison, Picture, Report, Table, jsonable
from cynosure.theorems import Check, Hypothesis

VOID = {"meta", "img", "br", "hr", "link", "input"}


class Page(HTMLParser):
    """Balanced tags, unique ids, every address asked for."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.sources: list[str] = []
        self.tags: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list) -> None:
        self.tags.append(tag)
        values = dict(attrs)
        if "id" in values:
            self.ids.append(values["id"])
        self.sources += [values[k] for k in ("src", "href") if k in values]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-3:]}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.text += data


def a_check(theorem: str = "B1", applies: bool = True, holds: bool | None = True) -> Check:
    hypothesis = Hypothesis("A symmetric (largest |A - A^T|)", applies, 0.0)
    margin = 0.25 if applies else float("nan")
    witness = {"layer": 3, "at": np.array([1.0, np.inf])}
    return Check(
        theorem, "arXiv 2407.01602", "hulls <shrink>", applies, holds, margin, 1e-12, witness,
        (hypothesis,), "float64",
    )  # fmt: skip


def a_picture() -> Picture:
    figure = Figure(figsize=(2, 2))
    figure.add_subplot().plot([0, 1], [1, 0])
    return Picture("A line", "From (0, 1) to `(1, 0)`.", figure)


GIF = b"GIF89a" + bytes(20)


def a_report() -> Report:
    table = Table("Some <numbers>", ("name", "x"), (("a & b", 1 / 3), ("c", np.nan), ("d", None)))
    chapter = Report("Second <level>", "text", {"seed": 1}, (table,), chapters=(Report("Third"),))
    return Report(
        "All & more",
        "First paragraph with `code`.\n\nSecond 1 < 2.",
        {"alpha": 0.5, "show": (0, 1)},
        (table,),
        {"case 1": (a_check(), a_check("B2", False, None)), "case 2": (a_check(),)},
        (a_picture(),),
        (Picture("Moving", "a GIF", GIF),),
        (chapter, chapter),
        "cynosure run x --set 'a=<b>'",
    )


def test_the_page_is_well_formed_and_needs_nothing() -> None:
    text = a_report().to_html()
    page = Page(text)
    assert page.open == []
    assert len(set(page.ids)) == len(page.ids) >= 5
    assert "script" not in page.tags and "link" not in page.tags
    targets = {f"#{name}" for name in page.ids}
    assert all(s.startswith("data:image/") or s in targets for s in page.sources)
    assert sum(s.startswith("data:image/") for s in page.sources) == 2
    assert "url(" not in text and "@import" not in text
    for words in ("1 < 2", "a & b", "hulls <shrink>", "needs: A symmetric", "'a=<b>'", "0.3333"):
        assert words in page.text


def test_the_judge_of_pages_sees_a_bad_one() -> None:
    with pytest.raises(AssertionError):
        Page("<p><b>x</p></b>")
    assert Page("<div>").open == ["div"]


def test_what_applies_nowhere_is_folded() -> None:
    some = {"x": (a_check("B1"), a_check("B2", False, None)), "y": (a_check("B1", False, None),)}
    page = Report("r", checks=some).to_html()
    shown, _, folded = page.partition("Not applicable here: B2</summary>")
    assert "<b>B1</b>" in shown and "<b>B2</b>" not in shown and "<b>B2</b>" in folded
    assert "Not applicable here" not in Report("r", checks={"x": (a_check(),)}).to_html()


def test_the_matrix_of_checks_shows_each_verdict() -> None:
    checks = (a_check(), a_check("B2", False, None), a_check("B3", True, False))
    text = Report("t", checks={"case": checks}).to_html()
    for mark in ("✓ <small>0.25</small>", 'idle">·<', "✗ <small>"):
        assert text.count(mark) == 1


def test_failures_come_from_every_chapter_and_only_where_a_statement_applies() -> None:
    bad, idle = a_check("B5", True, False), a_check("B6", False, None)
    inner = Report("inner", checks={"x": (bad, idle)})
    report = Report("outer", checks={"y": (a_check(),)}, chapters=(inner,))
    assert report.failures == [("x", bad)]
    assert report.verdict == "Checks made: 3; applicable: 2; of these holding: 1; FAILING: 1."
    assert "verdict bad" in report.to_html() and "FAIL" in report.to_html()
    fine = dataclasses.replace(report, chapters=())
    assert fine.failures == [] and "holding: 1, all of them." in fine.verdict
    assert "verdict bad" not in fine.to_html()


def test_json_has_no_nan_and_all_chapters() -> None:
    def refuse(name: str) -> None:
        raise AssertionError(name)

    data = json.loads(a_report().to_json(), parse_constant=refuse)
    assert data["params"] == {"alpha": 0.5, "show": [0, 1]}
    assert data["tables"][0]["rows"] == [["a & b", 1 / 3], ["c", None], ["d", None]]
    assert data["checks"]["case 1"][0]["witness"] == {"layer": 3, "at": [1.0, None]}
    assert data["checks"]["case 1"][1]["margin"] is None
    assert [c["title"] for c in data["chapters"]] == ["Second <level>"] * 2
    assert data["figures"] == [{"title": "A line", "caption": "From (0, 1) to `(1, 0)`."}]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.float32(0.5), 0.5),
        (np.int64(3), 3),
        (np.bool_(True), True),
        (-np.inf, None),
        (Fraction(1, 3), "1/3"),
        ((Fraction(2), [np.nan]), ["2", [None]]),
        ({1: np.arange(2)}, {"1": [0, 1]}),
        (Path("a"), "a"),
        (None, None),
    ],
)
def test_jsonable(value: object, expected: object) -> None:
    found = jsonable(value)
    assert found == expected and type(found) is type(expected)
    json.dumps(found, allow_nan=False)


def test_csv_can_be_read_back_exactly(tmp_path: Path) -> None:
    rows = ((1 / 3, Fraction(1, 3), (0.1, 0.2), "a,b"), (1e-300, 7, (1.0,), "é"))
    text = Table("t", ("x", "q", "z", "w"), rows).to_csv()
    head, *found = csv.reader(text.splitlines())
    assert head == ["x", "q", "z", "w"]
    assert [float(r[0]) for r in found] == [r[0] for r in rows]
    assert [Fraction(r[1]) for r in found] == [r[1] for r in rows]
    assert [tuple(map(float, r[2].split())) for r in found] == [r[2] for r in rows]
    assert [r[3] for r in found] == ["a,b", "é"]


def test_text_columns_are_aligned() -> None:
    table = Table("", ("token", "rule"), ((3, "S"), (12, "leader"), (None, "G")))
    assert table.to_text() == "token  rule\n    3  S\n   12  leader\n    –  G"


def test_zero_has_no_sign_in_a_table() -> None:
    rows = (("slow", -0.0), ("dull", round(-0.0001, 3)), ("fine", -0.25))
    said = Table("", ("word", "contribution"), rows).to_text()
    assert said == "word  contribution\nslow             0\ndull             0\nfine         -0.25"


@pytest.mark.parametrize(("rows", "box"), [(24, '<div class="scroll">'), (25, "scroll tall")])
def test_only_a_long_table_scrolls_in_its_own_box(rows: int, box: str) -> None:
    page = Table("t", ("k",), tuple((k,) for k in range(rows))).to_html()
    assert box in page and page.count("<tr>") == rows + 1 and Page(page).open == []


def test_save_writes_whole_files_and_refuses_other_kinds(tmp_path: Path) -> None:
    report = a_report()
    assert report.save(tmp_path / "new" / "r.html").read_text("utf-8") == report.to_html()
    assert json.loads(report.save(tmp_path / "r.json").read_text("utf-8")) == report.to_dict()
    with pytest.raises(ValueError, match=r"\.html or \.json"):
        report.save(tmp_path / "r.pdf")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["new", "r.json"]


def test_data_of_every_chapter_is_written(tmp_path: Path) -> None:
    written = a_report().save_data(tmp_path)
    names = sorted(str(p.relative_to(tmp_path)) for p in written)
    assert names == [
        "1-second-level/table1-some-numbers.csv",
        "2-second-level/table1-some-numbers.csv",
        "figure1-a-line.png",
        "figure1-a-line.svg",
        "movie1-moving.gif",
        "table1-some-numbers.csv",
    ]
    assert (tmp_path / "figure1-a-line.png").read_bytes()[:4] == b"\x89PNG"
    assert (tmp_path / "movie1-moving.gif").read_bytes() == GIF


def test_the_same_report_gives_the_same_bytes() -> None:
    assert a_report().to_html() == a_report().to_html()
    assert a_picture().encode(".png") == a_picture().encode(".png")


def test_a_picture_is_the_same_however_often_it_was_drawn() -> None:
    """Constrained layouts move a little with every drawing unless they are laid out once."""
    figure = Figure(figsize=(6, 3), layout="constrained")
    for ax in figure.subplots(1, 2):
        ax.set(aspect="equal", xlabel="$z_1$", ylabel="a long name", title="title")
        ax.plot([0, 1], [1, 0], label="line")
    figure.legend(loc="outside lower center", ncols=2)
    picture = Picture("Two panels", "", figure)
    first = picture.encode(".svg")
    assert picture.encode(".png") == picture.encode(".png")
    assert picture.encode(".svg") == first


def test_a_row_of_panels_scrolls_on_a_narrow_screen_and_a_square_does_not() -> None:
    row = Picture("Row", "", Figure(figsize=(9, 3)))
    maps = Picture("Two by two", "", Figure(figsize=(12, 7)))
    assert "<figure class=wide>" in row.to_html() and "<figure>" in a_picture().to_html()
    assert "<figure class=wide>" in maps.to_html()


def test_short_cells_stay_on_one_line_and_marks_in_lists_are_quoted() -> None:
    html = Table("", ("run", "n"), (("whole layer, no head", 3), ((",", "a", "."), 4))).to_html()
    assert '<td class="t">whole layer, no head</td><td class="r">3</td>' in html
    assert '<td class="t">“,”, a, “.”</td>' in html
    assert '<td class="w">' in Table("", ("x",), (("a sentence that may be folded",),)).to_html()


def test_report_and_explanation_share_one_style() -> None:
    """Every colour a page asks for by name is defined, in light and in dark."""
    from cynosure.classifier.bundled import load_pretrained

    explained = load_pretrained().explain("a slow film").to_html()
    for text in (a_report().to_html(), explained):
        assert text.startswith(page("", "").partition("<title>")[0])
        base = page("", "").partition("<style>")[2].partition("</style>")[0]
        assert base in text
        asked = set(re.findall(r"var\((--[a-z]+)\)", text))
        light = set(re.findall(r"(--[a-z]+): ?[#0-9]", text.partition("@media")[0]))
        dark = set(re.findall(r"(--[a-z]+): ?[#0-9]", text))
        assert {"--ink", "--grey", "--card"} <= asked <= dark
        assert asked - light <= {"--for", "--against"}


def test_a_title_is_plain_text() -> None:
    assert "<title>a &lt;b&gt; &amp; c</title>" in page("a <b> & c", "")
    assert page("t", "", "p{x:y}").count("p{x:y}</style>") == 1


def test_a_notebook_shows_the_page_apart_from_its_own_styles() -> None:
    shown = Report("t")._repr_html_()
    assert shown.startswith("<iframe srcdoc=") and "<html" not in shown
    assert re.search(r"&lt;html", shown)


def test_a_control_is_shown_with_its_verdict() -> None:
    controls = (
        Comparison("the <first>", "alpha in `0.5, 2`", "3 of 4", survives=True),
        Comparison("the second", "no attention", "0.51 with, 0.54 without", survives=False),
    )
    report = Report("Controlled", controls=controls)
    text = report.to_html()
    shown = Page(text)
    assert not shown.open and "the <first>" in shown.text and "0.54 without" in shown.text
    assert text.count("✓") == text.count("✗") == 1
    assert json.loads(report.to_json())["controls"][1]["survives"] is False
    assert "Control</h4>" not in Report("None").to_html()


def test_a_report_is_short_in_print():
    part = Report("Part", tables=(Table("t", ("a",), tuple((i,) for i in range(999))),))
    assert repr(part) == "Report('Part', 1 tables)"
    assert repr(Report("Whole", summary="long " * 999, chapters=(part, part))) == (
        "Report('Whole', 2 chapters)"
    )
    assert repr(Report("Empty")) == "Report('Empty')"
