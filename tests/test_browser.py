"""The page in a real browser: what hands and keys do is what the library says.

Needs Playwright and a Chromium: `CYNOSURE_BROWSER`, or one of the usual names; `make browser` gets
one on Debian. Every test also demands that no request left the server and no error was logged.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import cynosure as cy

ROOT = Path(__file__).resolve().parent.parent
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
SQUARE = [[1.0, 1.0], [1.0, -1.0], [-1.0, -1.0], [-1.0, 1.0], [0.5, 0.1]]
# A is neither symmetric nor definite, and nobody ever leads.
UNDECIDED = ([[2, 3], [0, 1], [-2, 1], [-2, -3], [-2, -3]], [[2, -1], [2, -2]])
FORBIDDEN = re.compile(r"^(?!http://127\.0\.0\.1:\d+/|data:|blob:)")

# A notebook's side of a widget: traits, messages, and an element to draw in.
NOTEBOOK = """async ([code, z, alpha]) => {
    const known = { z, alpha }, heard = {};
    const model = {
        get: (name) => known[name],
        set: (name, value) => { known[name] = value; },
        save_changes: () => { window.saved = (window.saved || 0) + 1; window.kept(known.z); },
        on: (name, take) => { heard[name] = take; },
        send: async (content) => heard["msg:custom"](await window.ask(content)),
    };
    const el = document.createElement("div");
    el.id = "notebook";
    document.body.prepend(el);
    const url = URL.createObjectURL(new Blob([code], { type: "text/javascript" }));
    (await import(url)).default.render({ model, el });
}"""

pytest.importorskip("fastapi")
playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install it")


def found_browser() -> str | None:
    named = [os.environ.get("CYNOSURE_BROWSER"), *NAMES]
    return next((path for name in named if name and (path := shutil.which(name))), None)


pytestmark = [
    pytest.mark.skipif(
        found_browser() is None,
        reason="no Chromium found: set CYNOSURE_BROWSER, or `make browser` on Debian",
    ),
    pytest.mark.xdist_group("browser"),
]


@contextlib.contextmanager
def serving(*options: str) -> Iterator[str]:
    """A server as `cynosure serve` starts it, and its address."""
    command = [sys.executable, "-m", "cynosure", "serve", "--port", "0", "--workers", "1"]
    command += options
    path = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
    env = {**os.environ, "PYTHONPATH": path}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as server:
        assert server.stdout is not None
        line = server.stdout.readline().strip()
        try:
            assert line.startswith("http://127.0.0.1:"), line
            yield line
        finally:  # a test that fails must not leave a server that is waited for
            server.send_signal(signal.SIGINT)
            code = server.wait(20)
        assert code == 0, "Ctrl-C ends the server cleanly"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with serving() as where:
        yield where


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        running = started.chromium.launch(executable_path=found_browser(), args=["--no-sandbox"])
        yield running
        running.close()


class Visit:
    """One page, watched: errors that were logged, requests that were made."""

    def __init__(self, browser: Any, address: str, **options: Any) -> None:
        self.address = address
        self.context = browser.new_context(viewport={"width": 1280, "height": 900}, **options)
        self.context.set_default_timeout(60_000)  # a busy machine is slow, not wrong
        self.page = self.context.new_page()
        self.errors: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))

    def _heard(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.errors.append(message.text)

    def play(self, tokens: list, **state: Any) -> Any:
        """The page with these tokens, once the proof is there."""
        show = {"hull": True, "polytope": True, "arrows": True}
        data = {"z": tokens, "alpha": 0.5, "k": 0, "show": show, **state}
        self.page.goto("about:blank")
        self.page.goto(f"{self.address}#play={link(data)}")
        self.page.locator("#badge[data-certified]").wait_for()
        return self.page

    def room(self, name: str) -> Any:
        self.page.goto(f"{self.address}#{name}")
        return self.page

    def state(self) -> dict:
        """What the link says is on the stage, once it was written."""
        self.page.locator("#stage[data-link=written]").wait_for()
        return unlink(self.page.url.partition("#play=")[2])


def link(state: dict) -> str:
    return base64.urlsafe_b64encode(json.dumps(state).encode()).decode().rstrip("=")


def unlink(text: str) -> dict:
    return json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))


@contextlib.contextmanager
def visiting(browser, address, **options) -> Iterator[Visit]:
    visit = Visit(browser, address, **options)
    try:
        yield visit
        assert not visit.errors, visit.errors
        assert visit.requests and not [url for url in visit.requests if FORBIDDEN.match(url)]
    finally:
        visit.context.close()


@pytest.fixture
def visit(browser, address) -> Iterator[Visit]:
    with visiting(browser, address) as made:
        yield made


def test_a_foreign_request_would_be_noticed() -> None:
    assert FORBIDDEN.match("https://cdn.example/x.js") and FORBIDDEN.match(
        "http://127.0.0.1.example/"
    )
    assert not FORBIDDEN.match("http://127.0.0.1:8765/static/app.js")


def leaders(page) -> set[int]:
    nodes = page.locator("#stage [data-role=leader]")
    return {int(i) for i in nodes.evaluate_all("nodes => nodes.map(n => n.dataset.token)")}


def answered(page, leading: set[int], where: str = "#stage") -> None:
    """Wait until exactly these lead on the stage."""
    page.wait_for_function(
        "([wanted, where]) => JSON.stringify([...document.querySelectorAll(`${where} "
        "[data-role=leader]`)].map(n => Number(n.dataset.token)).sort((a, b) => a - b)) === wanted",
        arg=[json.dumps(sorted(leading), separators=(",", ":")), where],
    )


def place(page, token: int) -> tuple[float, float]:
    box = page.locator(f"#stage [data-token='{token}'] path").bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def drag(page, start: tuple[float, float], stop: tuple[float, float]) -> None:
    page.mouse.move(*start)
    page.mouse.down()
    for share in (0.25, 0.5, 0.75, 1.0):
        page.mouse.move(*(a + share * (b - a) for a, b in zip(start, stop)))
    page.mouse.up()


def proved(state: dict) -> cy.Limit:
    A = state.get("A")
    attention = cy.Hardmax(None if A is None else np.array(A, float))
    return cy.limit(cy.PureAttention(attention, state["alpha"]), state["z"])


# --- play ----------------------------------------------------------------------------------------


def test_a_dragged_token_leads_when_the_library_says_so(visit) -> None:
    page = visit.play(SQUARE)
    answered(page, {0, 1, 2, 3})
    x, y = place(page, 4)
    right = place(page, 0)[0]
    drag(page, (x, y), (right + 80, y))
    li = proved(visit.state())
    assert 4 in li.leaders
    answered(page, set(li.leaders.tolist()))
    assert page.locator("#badge").get_attribute("data-certified") == "true"
    assert "5 of 5 tokens lead" in page.locator("#said").inner_text()


def test_many_tokens_are_painted_and_still_held(visit) -> None:
    """Beyond some hundred tokens followers have no nodes: a place finds them."""
    z = cy.configurations.gaussian(600, 2, seed=1)
    li = proved({"z": z, "alpha": 0.5})
    page = visit.play(z.tolist())
    answered(page, set(li.leaders.tolist()))
    assert page.locator("#stage [data-token]").count() == len(li.leaders)
    apart = np.linalg.norm(z[:, None] - z[li.leaders], axis=2).min(axis=1)
    follower = int(apart.argmax())
    (x0, y0), (x1, y1) = (place(page, i) for i in li.leaders[:2])
    a, b = z[li.leaders[:2]]
    scale = np.array([(x1 - x0) / (b - a)[0], (y1 - y0) / (b - a)[1]])
    drag(page, tuple(scale * (z[follower] - a) + (x0, y0)), (x0 + 30, y0 - 30))
    moved = np.array(visit.state()["z"])
    assert np.flatnonzero(abs(moved - z).max(axis=1) > 1e-9).tolist() == [follower]
    answered(page, set(proved(visit.state()).leaders.tolist()))
    page.locator("#exports").evaluate("node => { node.parentNode.open = true; }")
    with page.expect_download() as given:
        page.locator("[data-export=svg]").click()
    assert b"data:image/png" in Path(given.value.path()).read_bytes(), (
        "followers are in the picture"
    )


def test_the_same_picture_in_a_notebook(browser, address) -> None:
    """The widget's module in a bare page, its messages answered by the widget itself."""
    pytest.importorskip("anywidget")
    w = cy.widget(SQUARE)
    with visiting(browser, address, bypass_csp=True) as visit:  # a notebook's page is not ours
        page = visit.page

        def ask(content: dict) -> dict:
            sent: list[dict] = []
            w.send = sent.append
            w._handle_custom_msg(content, [])
            return sent[0]

        page.expose_function("ask", ask)
        page.expose_function("kept", lambda z: setattr(w, "z", z))
        page.goto(f"{address}reference")
        page.add_style_tag(content=w._css)
        page.evaluate(NOTEBOOK, [w._esm, w.z, w.alpha])
        answered(page, {0, 1, 2, 3}, "#notebook")
        box, right = (
            page.locator(f"#notebook [data-token='{i}'] path").bounding_box() for i in (4, 0)
        )
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        drag(page, (x, y), (right["x"] + 60, y))
        answered(page, {0, 1, 2, 3, 4}, "#notebook")
        page.wait_for_function("() => window.saved === 1")
        assert w.z[4][0] > 1 and w.z[:4] == SQUARE[:4]
        assert w.limit.leaders.tolist() == [0, 1, 2, 3, 4]
        assert page.locator("#notebook .badge").inner_text() == "proved"


def test_undo_redo_and_the_link(visit, browser, address) -> None:
    page = visit.play(SQUARE)
    answered(page, {0, 1, 2, 3})
    x, y = place(page, 4)
    drag(page, (x, y), (x - 60, y + 40))
    moved = visit.state()
    assert moved["z"] != SQUARE and moved["z"][:4] == SQUARE[:4]
    page.locator("#undo").click()
    assert visit.state()["z"] == SQUARE
    page.keyboard.press("Control+y")
    assert visit.state()["z"] == moved["z"]
    with visiting(browser, address) as again:
        assert again.play(**{"tokens": moved["z"]}) is not None
        again.page.goto("about:blank")
        again.page.goto(page.url)
        again.page.locator("#badge[data-certified]").wait_for()
        assert again.state() == moved


def test_the_step_and_the_form(visit) -> None:
    page = visit.play(cy.configurations.golden("G1").tolist())
    answered(page, set(proved(visit.state()).leaders.tolist()))
    page.locator("#alpha").fill("-2.3")
    state = visit.state()
    assert state["alpha"] == pytest.approx(0.1, rel=0.02)
    answered(page, set(proved(state).leaders.tolist()))
    handle = page.locator("#ellipse [data-handle='0']").bounding_box()
    x, y = handle["x"] + handle["width"] / 2, handle["y"] + handle["height"] / 2
    drag(page, (x, y), (x - 25, y - 20))
    state = visit.state()
    assert state["A"] is not None and np.linalg.eigvalsh(state["A"])[0] > 0
    answered(page, set(proved(state).leaders.tolist()))
    page.locator("#matrix input").nth(1).fill("-3")
    page.locator("#matrix input").nth(1).press("Tab")
    page.wait_for_function("() => document.getElementById('cautions').textContent.includes('B16')")
    page.locator("#identity").click()
    page.wait_for_function("() => !document.getElementById('cautions').textContent.includes('B16')")


def test_what_is_not_proved_is_called_undecided(visit) -> None:
    tokens, A = UNDECIDED
    page = visit.play(tokens, A=A)
    page.locator("#badge[data-certified=false]").wait_for()
    assert "undecided" in page.locator("#badge").inner_text()


def test_layers_and_infinity(visit) -> None:
    z0 = cy.configurations.figure2(3).tolist()
    page = visit.play(z0)
    node = "document.querySelector(`#stage [data-token='${i}']`)"
    at = f"i => {node}.getAttribute('transform')"
    start = page.evaluate(at, 5)
    page.locator("#layer").fill("3")
    page.wait_for_function(f"was => ({at})(5) !== was", arg=start)
    third = page.evaluate(at, 5)
    page.locator("#layer").fill("31")
    page.wait_for_function(f"was => ({at})(5) !== was", arg=third)
    assert page.locator("#at").inner_text() == "∞"
    li = proved({"z": z0, "alpha": 0.5})
    end, leader = (page.evaluate(at, i) for i in (5, int(li.follows[5])))
    assert end == leader, "at infinity a follower is where its leader is"
    page.locator("#run").click()
    page.wait_for_function("() => document.getElementById('at').textContent === '2'")
    page.locator("#run").click()


def test_tokens_are_added_duplicated_and_deleted(visit) -> None:
    page = visit.play(SQUARE)
    box = page.locator("#stage").bounding_box()
    page.mouse.dblclick(box["x"] + box["width"] - 60, box["y"] + box["height"] / 2 + 7)
    state = visit.state()
    assert len(state["z"]) == 6
    answered(page, set(proved(state).leaders.tolist()))
    page.locator("#duplicate").click()
    assert visit.state()["z"][6] == state["z"][5]
    page.locator("#delete").click()
    assert visit.state()["z"] == state["z"]


def test_choosing_who_leads(visit) -> None:
    tokens = [[2.0, 0.0], [0.2, 1.0], [1.5, 0.9], [0.1, 0.1]]
    page = visit.play(tokens)
    page.locator("#choose").click()
    page.locator("#stage [data-token='1'] path").click()
    page.locator("#steer").click()
    page.locator("#stage [data-token='1'][data-role=leader]").wait_for()
    assert 1 in proved(visit.state()).leaders
    page.locator("#stage [data-token='1'] path").click()
    page.locator("#stage [data-token='3'] path").click()
    page.locator("#steer").click()
    page.wait_for_function(
        "() => document.getElementById('control-said').textContent.startsWith('No such A')"
    )
    assert str(cy.control(tokens, 3).witness) in page.locator("#control-said").inner_text()


def test_keys_alone(visit) -> None:
    page = visit.play(SQUARE)
    page.locator("#stage").focus()
    for _ in range(5):
        page.keyboard.press("Tab")
    focused = "document.activeElement.dataset.token"
    assert page.evaluate(focused) == "4"
    for _ in range(12):
        page.keyboard.press("ArrowRight")
    state = visit.state()
    assert state["z"][4][0] > 1 and state["z"][4][1] == SQUARE[4][1]
    answered(page, set(proved(state).leaders.tolist()))
    page.keyboard.press("d")
    assert len(visit.state()["z"]) == 6
    page.keyboard.press("Control+z")
    page.keyboard.press("Control+z")
    assert visit.state()["z"][4][0] < state["z"][4][0]
    page.locator("#stage [data-token='3']").focus()
    page.keyboard.press("Delete")
    assert visit.state()["z"] == [*SQUARE[:3], visit.state()["z"][3]]


def test_theorems_are_live(visit) -> None:
    page = visit.play(SQUARE)
    page.locator("#theorems .yes").first.wait_for()
    run = cy.simulate(cy.PureAttention(alpha=0.5), SQUARE, layers=30)
    apply = [c for c in cy.check(run) if c.applies]
    assert page.locator("#theorem-count").inner_text() == f"{len(apply)} of {len(apply)} hold"
    page.locator("[data-show=basins]").check()
    page.locator("#stage .ground path").first.wait_for(state="attached")
    with page.expect_response("**/basins") as cells:
        page.locator("[data-show=cells]").check()
    assert not page.locator("[data-show=basins]").is_checked(), "one background at a time"
    page.locator("#stage .ground path").first.wait_for(state="attached")
    asked = cells.value.request.post_data_json
    assert asked["kind"] == "cells" and set(cells.value.json()["basin"]) == {0, 1, 2, 3}


@pytest.mark.slow
def test_every_dynamics_stands_beside(visit) -> None:
    page = visit.play(SQUARE)
    page.locator("#beside-form").evaluate("node => { node.parentNode.open = true; }")
    pick = page.locator("#beside-dynamics")
    for name, kind in cy.DYNAMICS.items():
        pick.select_option(name)
        page.wait_for_function(
            "said => document.getElementById('beside-caption').textContent.match(said)",
            arg=rf"· {kind.__name__}( with .*)?\.",
        )
        assert page.locator("#beside [data-token]").count() == 5
    pick.select_option("pure_attention")
    page.get_by_label("attention", exact=True).select_option("softmax")
    page.locator("#field-beta-0").fill("7")
    page.locator("#field-beta-0").press("Tab")
    assert visit.state()["beside"]["attention"] == {"name": "softmax", "beta": 7}


def test_softmax_stands_beside_and_follows_the_hand(visit) -> None:
    """One click; what is shown is the library's run of the tokens as they are held now."""
    page = visit.play(SQUARE)
    page.locator("#soft").click()
    page.locator("#beside [data-token]").first.wait_for()

    def together(response) -> bool:
        sent = response.request.post_data_json if response.url.endswith("/simulate") else {}
        spec = sent.get("dynamics", {})
        return spec.get("alpha") == 1 and spec["attention"] == {"name": "softmax", "beta": 5}

    with page.expect_response(together):
        page.locator("#alpha").fill("0")
    x, y = place(page, 4)
    drag(page, (x, y), (x + 70, y + 30))
    state = visit.state()
    assert state["beside"]["alpha"] == state["alpha"] == 1, "the two step alike"
    layers = cy.PureAttention(cy.Softmax(beta=5.0), 1.0)
    wanted = cy.simulate(layers, state["z"], layers=30).values[-1]
    page.locator("#layer").fill("31")
    page.wait_for_function(
        "n => document.querySelectorAll('#beside [data-path]')[0]?.getAttribute('d')"
        ".split('L').length === n",
        arg=31,
    )
    ends = page.locator("#beside [data-token]").evaluate_all(
        "nodes => nodes.map(n => n.getAttribute('transform').match(/[-\\d.]+/g).map(Number))"
    )
    shown = np.array(ends)[:, :2] - np.array(ends)[0, :2]
    expected = (wanted - wanted[0]) * [1, -1]
    scale = abs(shown).max() / abs(expected).max()
    assert np.allclose(shown, scale * expected, atol=0.3), "tenths of a pixel are not drawn"
    page.locator("#soft").click()
    page.locator("#beside-box").wait_for(state="hidden")


def test_what_a_token_is_told_by_pointer_finger_and_key(browser, address) -> None:
    with visiting(browser, address, has_touch=True) as visit:
        exact = [["1", "1"], ["1", "-1"], ["1/3", "0"]]
        tokens = [[1.0, 1.0], [1.0, -1.0], [1 / 3, 0.0]]
        page = visit.play(tokens, exact=exact, rational=True)
        tip = page.locator("#tip")
        page.locator("#stage [data-token='2'] .ring").tap(force=True)
        tip.wait_for()
        li = cy.limit(cy.PureAttention(alpha="1/2"), exact, exact=True)
        limit = ", ".join(map(str, li.exact_points[2]))
        assert "token 2 at 1/3, 0" in tip.inner_text() and f"limit {limit}" in tip.inner_text()
        page.locator("#stage").focus()
        tip.wait_for(state="hidden")
        page.keyboard.press("Tab")
        tip.wait_for()
        assert "leads" in tip.inner_text() and "C = {0}" in tip.inner_text()
        page.locator("#badge").click()
        assert "no guess" in page.locator("#proof").inner_text()


def test_what_is_taken_away_is_what_was_shown(visit, tmp_path) -> None:
    page = visit.play(SQUARE, A=[[2, 0.5], [0.5, 1]])
    page.locator("#exports").evaluate("node => { node.parentNode.open = true; }")
    files = {}
    for kind in ("svg", "png", "csv", "npz", "html"):
        with page.expect_download() as given:
            page.locator(f"[data-export={kind}]").click()
        files[kind] = tmp_path / given.value.suggested_filename
        given.value.save_as(files[kind])
    root = ElementTree.fromstring(files["svg"].read_text("utf-8"))
    assert len(root.findall(".//*[@data-token]")) == 5
    assert files["png"].read_bytes().startswith(b"\x89PNG")
    run = cy.load(files["npz"])
    assert run.values[0].tolist() == SQUARE
    li = proved({"z": SQUARE, "alpha": 0.5, "A": [[2, 0.5], [0.5, 1]]})
    rows = np.genfromtxt(files["csv"], delimiter=",", skip_header=1, usecols=(1, 2, 3, 4))
    assert np.array_equal(rows[:, 2:], li.points)
    assert "</html>" in files["html"].read_text("utf-8")
    page.locator("[data-export=python]").click()
    code = page.locator("#python").inner_text()
    space: dict[str, Any] = {}
    with contextlib.redirect_stdout(io.StringIO()):
        exec(code, space)
    assert space["li"].leaders.tolist() == li.leaders.tolist()


def test_space_and_many_dimensions(visit) -> None:
    for d in (1, 3, 8):
        page = visit.play(cy.configurations.gaussian(12, d, seed=1).tolist())
        li = cy.limit(cy.PureAttention(alpha=0.5), cy.configurations.gaussian(12, d, seed=1))
        answered(page, set(li.leaders.tolist()))
    before = page.locator("#stage [data-token='0']").get_attribute("transform")
    box = page.locator("#stage").bounding_box()
    corner = (box["x"] + 20, box["y"] + 20)
    drag(page, corner, (corner[0] + 80, corner[1] + 30))
    assert page.locator("#stage [data-token='0']").get_attribute("transform") != before


def test_presets_paste_and_a_dropped_file(visit, tmp_path) -> None:
    page = visit.room("play")
    page.locator("#badge[data-certified]").wait_for()
    for option in page.locator("#preset option").all_inner_texts():
        if "2,000" in option:
            continue
        page.locator("#preset").select_option(label=option)
    page.locator("#preset").select_option(label="golden case G4")
    page.locator("#exact").check()
    page.wait_for_function("() => document.getElementById('said').textContent.includes('layer 61')")
    page.locator("#paste").evaluate("node => { node.parentNode.open = true; }")
    page.locator("#paste").fill("1, 1\n1, -1\n1/2, 0")
    page.locator("#paste-take").click()
    assert visit.state()["exact"][2] == ["1/2", "0"]
    (tmp_path / "tokens.csv").write_text("x,y\n1,2\n-1,0.5\n")
    page.locator("#csv").set_input_files(tmp_path / "tokens.csv")
    page.locator("#stage [data-token='2']").wait_for(state="detached")
    assert visit.state()["z"] == [[1, 2], [-1, 0.5]]


def test_a_bad_link_is_said_and_survived(visit) -> None:
    page = visit.page
    for bad in ("nonsense!", link({"z": [[1, 2], [3]]}), link({"z": "<script>"})):
        page.goto("about:blank")
        page.goto(f"{visit.address}#play={bad}")
        page.locator("#problem:not([hidden])").wait_for()
        page.locator("#stage [data-token='0']").wait_for(state="attached")


# --- read ----------------------------------------------------------------------------------------


def verdict(page, label: str) -> float:
    node = page.locator(f"#verdict[data-label='{label}']")
    node.wait_for()
    return float(node.get_attribute("data-decision"))


def test_the_explanation_follows_what_is_typed(visit) -> None:
    clf = cy.load_pretrained()
    page = visit.room("read")
    verdict(page, "pos")
    text = "Dull, awful and tedious, with one wonderful scene."
    page.locator("#read-text").fill("")
    page.locator("#read-text").press_sequentially(text, delay=2)
    wanted = clf.explain(text)
    page.wait_for_function(
        "x => Math.abs(Number(document.getElementById('verdict').dataset.decision) - x) < 1e-9",
        arg=wanted.decision,
    )
    assert verdict(page, wanted.prediction) == pytest.approx(wanted.decision)
    for word in ("dull", "awful", "tedious"):
        page.locator(f"#words [data-word='{word}']").first.click()
        page.locator(f"#words [data-word='{word}'].struck").first.wait_for()
    rest = clf.explain(text, struck=["dull", "awful", "tedious"])
    assert verdict(page, "pos") == pytest.approx(rest.decision, abs=1e-9)


def test_names_of_leaders_can_be_told_apart(visit) -> None:
    """Many strong words of one side stand close together in the plane."""
    text = "The worst, a waste of money: awful, dull, boring, terrible, poor, lame and stupid."
    clf, page = cy.load_pretrained(), visit.room("read")
    verdict(page, "pos")
    page.locator("#read-text").fill(text)
    verdict(page, "neg")
    names, boxes = page.evaluate(
        """() => {
            const svg = document.querySelector("svg[aria-label^='tokens of the text']");
            const nodes = [...svg.querySelectorAll("text"), ...svg.querySelectorAll("circle")];
            const box = (r) => [r.left, r.top, r.right, r.bottom];
            return [[...svg.querySelectorAll("text")].map((x) => x.textContent), nodes.map((x) => box(x.getBoundingClientRect()))];
        }"""  # noqa: E501
    )
    assert sorted(names) == sorted(
        x.text for x in clf.explain(text).leaders if x.text != "(neutral)"
    )
    assert len(names) > 3
    for k in range(len(names)):
        left, top, right, low = boxes[k]
        rest = np.array(boxes[:k] + boxes[k + 1 :])
        over = (rest[:, 0] < right) & (rest[:, 2] > left) & (rest[:, 1] < low) & (rest[:, 3] > top)
        assert not over.any(), names[k]


def test_two_versions_are_compared_as_one_types(visit) -> None:
    clf = cy.load_pretrained()
    page = visit.room("read")
    verdict(page, "pos")
    before = page.locator("#read-text").input_value()
    page.get_by_role("button", name="Keep this version").click()
    after = before.replace("wonderful", "dull")
    page.locator("#read-text").fill(after)
    wanted = clf.explain(after).decision - clf.explain(before).decision
    page.wait_for_function(
        "x => Math.abs(Number(document.querySelector('[data-change]')?.dataset.change) - x) < 1e-9",
        arg=wanted,
    )
    kept = page.locator(".version")
    assert kept.locator("del").all_inner_texts() == ["wonderful"]
    assert kept.locator("ins").all_inner_texts() == ["dull"]
    assert {"wonderful", "dull"} <= set(kept.locator("tbody td:first-child").all_inner_texts())
    page.get_by_role("button", name="Bring back").click()
    page.locator("[data-change='0']").wait_for()
    assert page.locator("#read-text").input_value() == before
    page.locator("#card summary").click()
    card = page.frame_locator("#card iframe").locator("h1")
    card.wait_for()
    assert "imdb" in card.inner_text()


def test_texts_are_shown_and_never_run(visit) -> None:
    page = visit.room("read")
    text = "</script><img src=x onerror=alert(1)> 'quoted' \u202ebidi\u202c \U0001f600 wonderful"
    page.locator("#read-text").fill(text)
    page.locator("#words [data-word=bidi]").wait_for()
    assert page.locator("#words").inner_text().replace("\n", " ").split() == text.split()
    assert page.locator("#room-read img").count() == 0


def test_a_file_is_labelled(visit, tmp_path) -> None:
    texts = ["A wonderful film, moving and funny.", 'Dull, "awful" and tedious,\nall of it.'] * 60
    quoted = ['"' + text.replace('"', '""') + '"' for text in texts]
    lines = "".join(f"{i},{text}\r\n" for i, text in enumerate(quoted))
    (tmp_path / "reviews.csv").write_text("id,text\r\n" + lines, newline="")
    page = visit.room("read")
    page.locator("#label-file").set_input_files(tmp_path / "reviews.csv")
    page.locator("#label-take:not([hidden])").wait_for()
    with page.expect_download() as given:
        page.locator("#label-take").click()
    given.value.save_as(tmp_path / "labels.csv")
    import csv

    rows = list(csv.DictReader(io.StringIO((tmp_path / "labels.csv").read_text("utf-8"))))
    assert [row["text"] for row in rows] == texts
    assert [row["label"] for row in rows] == cy.load_pretrained().predict(texts).tolist()
    lines = "".join(
        json.dumps({"id": i, "review": text}) + "\n" for i, text in enumerate(texts[:2])
    )
    (tmp_path / "two.jsonl").write_text(lines)
    page.locator("#label-file").set_input_files(tmp_path / "two.jsonl")
    page.get_by_text("2 of 2 texts: 1 pos, 1 neg").wait_for()
    assert "up to 50 MB" in page.locator("#label-drop").inner_text()


# --- look inside and the gallery -----------------------------------------------------------------


@pytest.mark.slow
def test_a_sentence_is_walked(browser, tmp_path) -> None:
    pytest.importorskip("transformers", reason="pip install 'cynosure[models]'")
    from test_pretrained import tiny_model, tiny_tokenizer

    tiny_model("bert").save_pretrained(tmp_path / "tiny")
    tiny_tokenizer("bert").save_pretrained(tmp_path / "tiny")
    model = cy.load_transformer(tmp_path / "tiny")
    with (
        serving("--transformer", str(tmp_path / "tiny")) as where,
        visiting(browser, where) as visit,
    ):
        visit.context.set_default_timeout(120_000)  # torch and the model are read first
        page = visit.room("look")
        page.locator("#look-text").fill("the film")
        page.locator("#look-go").click()
        n = len(model.trace("the film").words)
        count = "document.querySelectorAll('#look-stage [data-token]').length"
        page.wait_for_function(f"() => {count} === {n}")
        assert page.locator("#look-heat").get_attribute("data-tokens") == str(n)
        page.locator("#look-layer").fill(str(model.depth))
        page.locator("[data-head]").first.wait_for()
        assert page.locator("[data-head]").count() == len(model.distinct_layers) * model.width
        page.locator("[data-head=L0H1]").click()
        page.wait_for_function("() => document.querySelectorAll('#look-iterated svg').length === 3")
        said = page.locator("#look-iterated").inner_text()
        assert "silent: no head at all" in said and "frozen: its attention" in said
        assert page.locator("#look-iterated .wait").count() == 0, "progress ends with the answer"
        page.locator("#look-stage [data-path='0']").dispatch_event("pointermove")
        assert model.trace("the film").words[0] in page.locator("#tip").inner_text()


def test_names_lie_over_no_name_and_no_token(visit) -> None:
    """Crowded tokens, near and far in perspective: what is written can be read."""
    z = np.random.default_rng(0).standard_normal((40, 3))
    z[:20] *= 0.3
    z[38:] = 2.5, -2.5, 0
    boxes = visit.room("look").evaluate(
        """async (z) => {
            const { Scene } = await import("/static/scene.js");
            const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
            svg.setAttribute("viewBox", "0 0 800 560");
            svg.style.width = "800px";
            document.body.prepend(svg);
            const scene = new Scene(svg, { editable: false });
            scene.fit(z);
            const word = (i) => "wonderful".slice(0, 2 + (i % 8)) + i;
            scene.draw({ points: z, group: () => 0, leads: (i) => i % 3 === 0, open: () => false, names: true, name: word });
            const box = (node) => { const r = node.getBoundingClientRect(); return [r.left, r.top, r.right, r.bottom]; };
            const written = [...svg.querySelectorAll(".token")].map((g) => {
                const text = g.querySelector("text");
                return { name: text.textContent, text: box(text), token: box(g.querySelector("path")) };
            });
            svg.remove();
            return written;
        }""",  # noqa: E501
        z.tolist(),
    )
    named = [i for i, one in enumerate(boxes) if one["name"]]
    assert len(named) > 20 and boxes[38]["name"].endswith("+1") and not boxes[39]["name"]
    words = np.array([boxes[i]["text"] for i in named])
    middles = np.array([one["token"] for one in boxes]).reshape(-1, 2, 2).mean(axis=1)
    for k, (left, top, right, low) in enumerate(words):
        rest = np.delete(words, k, axis=0)
        over = (rest[:, 0] < right) & (rest[:, 2] > left) & (rest[:, 1] < low) & (rest[:, 3] > top)
        assert not over.any(), [boxes[named[k]]["name"]]
        inside = (middles > (left, top)) & (middles < (right, low))
        assert not inside.all(axis=1).any(), boxes[named[k]]["name"]


def test_without_a_transformer_the_room_says_how_to_give_one(visit) -> None:
    page = visit.room("look")
    page.locator("#room-look pre").wait_for()
    assert "--transformer" in page.locator("#room-look").inner_text()


def test_an_experiment_is_run_and_another_cancelled(visit) -> None:
    page = visit.room("gallery")
    page.locator("[data-run=figure1]").click()
    page.locator("[data-state=done]").wait_for(timeout=60_000)
    page.get_by_role("button", name="Report").click()
    frame = page.frame_locator("iframe.frame")
    frame.locator("h1").first.wait_for()
    assert "Figure 1" in frame.locator("h1").first.inner_text()
    long = page.locator("[data-experiment=basins]")
    long.get_by_text("Parameters").click()
    long.get_by_label("quick").uncheck()  # quickly it may be over before it is cancelled
    long.locator("[data-run=basins]").click()
    page.get_by_role("button", name="Cancel").click()
    page.locator("[data-state=cancelled]").wait_for()


# --- how it looks --------------------------------------------------------------------------------


# Every text that is seen, with its colour and the first ground behind it that is not clear.
SEEN = """() => {
    const numbers = (c) => (c.match(/[\\d.]+/g) || []).map(Number);
    const over = ([r, g, b, a], below) => [r, g, b].map((x, i) => x * a + below[i] * (1 - a));
    const ground = (node) => {
        const layers = [];
        for (let one = node; one; one = one.parentElement) {
            const [r, g, b, a = 1] = numbers(getComputedStyle(one).backgroundColor);
            layers.push([r, g, b, a]);
            if (a === 1) break;
        }
        return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255]);
    };
    const linear = (x) => x <= 10.3 ? x / 3294.6 : ((x / 255 + 0.055) / 1.055) ** 2.4;
    const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
    const out = [];
    for (const node of document.querySelectorAll("body *")) {
        const own = [...node.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
        const style = getComputedStyle(node), box = node.getBoundingClientRect();
        if (!own || !box.width || node.closest("svg, :disabled, .skip")) continue;
        const below = ground(node), [r, g, b, a = 1] = numbers(style.color);
        const [x, y] = [light(over([r, g, b, a], below)), light(below)].sort((p, q) => q - p);
        out.push([(x + 0.05) / (y + 0.05), node.textContent.trim().slice(0, 40)]);
    }
    return out;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_can_be_read(visit, scheme: str) -> None:
    """Contrast of at least 4.5 (WCAG AA) in every room, buttons and coloured words included."""
    page = visit.page
    page.emulate_media(color_scheme=scheme)
    ready = {"play": "#theorems .yes", "read": "#words .leads", "gallery": ".tile"}
    for room, there in ready.items():
        visit.room(room)
        page.locator(f"#room-{room}").locator(there).first.wait_for()
        seen = page.evaluate(SEEN)
        assert len(seen) > 20
        poor = [row for row in seen if row[0] < 4.5]
        assert not poor, (room, poor)
    page.evaluate("() => { document.getElementById('gallery-intro').style.color = '#7777'; }")
    assert any(row[0] < 4.5 for row in page.evaluate(SEEN)), "a pale text would be noticed"


def test_a_telephone_and_the_dark(visit) -> None:
    page = visit.page
    page.set_viewport_size({"width": 390, "height": 844})
    for room in ("play", "read", "look", "gallery"):
        visit.room(room)
        page.locator(f"#room-{room} *").first.wait_for(state="attached")
        page.wait_for_load_state("networkidle")
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= 390, f"{room} is {wide} px wide"
    for scheme in ("dark", "light"):
        page.emulate_media(color_scheme=scheme)
        page.locator(f"html[data-theme={scheme}]").wait_for()
        rgb = page.evaluate("getComputedStyle(document.body).backgroundColor")
        light = sum(map(int, re.findall(r"\d+", rgb)[:3])) > 380
        assert light == (scheme == "light")


def test_an_explanation_with_long_words_fits_a_telephone(browser) -> None:
    ex = cy.load_pretrained().explain(
        "An unimaginative disappointment, unintentionally unconvincing."
    )
    page = browser.new_page(viewport={"width": 390, "height": 844})
    page.set_content(ex.to_html())
    page.locator("#leaders td").first.wait_for()
    assert max(len(word) for word in ex.enough) > 12
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.close()


def test_taking_hold_ends_the_movie(visit) -> None:
    """A preset chosen while layers run is seen from its first layer."""
    page = visit.play(SQUARE)
    page.locator("#run").click()
    page.wait_for_function("() => document.getElementById('at').textContent === '2'")
    page.locator("#preset").select_option(label="polygon")
    page.wait_for_function("() => document.getElementById('at').textContent === '0'")
    assert page.locator("#run").inner_text() == "▶" and visit.state()["k"] == 0


def test_the_reference_needs_no_other_server(visit) -> None:
    visit.page.goto(f"{visit.address}reference")
    visit.page.locator(".route").first.wait_for()
    said = visit.page.locator("#routes").inner_text()
    assert "/api/v1/limit" in said and "tokens *" in said


def test_the_files_of_the_page_are_small() -> None:
    static = ROOT / "src" / "cynosure" / "web" / "static"
    assert sum(path.stat().st_size for path in static.iterdir()) <= 200_000
