"""The HTTP API: every route is its library call, every refusal is a problem, nothing is a 5xx."""

from __future__ import annotations

import asyncio
import io
import json
import re
import select
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlencode

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import cynosure as cy
from cynosure import catalogue

pytest.importorskip("fastapi")
from starlette.testclient import TestClient

from cynosure.analysis.probes import basins
from cynosure.web import connections
from cynosure.web.answers.dynamics_fields import dynamics_of, forms
from cynosure.web.answers.experiments import params_of
from cynosure.web.answers.texts import text_answers
from cynosure.web.answers.tokens import plane
from cynosure.web.connections import _Connection, serve
from cynosure.web.gallery import Gallery, _Run
from cynosure.web.requests import schema
from cynosure.web.requests.bounds import BOUNDS
from cynosure.web.requests.problems import Refusal
from cynosure.web.server import Settings, application
from cynosure.web.workers import pool as pools
from cynosure.web.workers.pool import Pool
from cynosure.web.workers.progress import progress

ROOT = Path(__file__).resolve().parent.parent
HOME = "http://localhost:8765"
SQUARE = [[1, 1], [1, -1], [-1, -1], [-1, 1], [0.5, 0.0]]
TEXT = "A slow film, but what a wonderful ending!"

pytestmark = pytest.mark.xdist_group("web")  # one server, in one worker


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with TestClient(application(Settings(workers=1)), base_url=HOME) as made:
        yield made


def problem(answer, status: int) -> dict:
    """The body of a refusal, which says what it is."""
    assert answer.status_code == status, answer.text[:500]
    assert answer.headers["content-type"] == "application/problem+json"
    body = answer.json()
    assert body["status"] == status and body["title"] and body["detail"]
    assert "Traceback" not in answer.text
    return body


# --- routes are library calls --------------------------------------------------------------------


def test_limit_is_the_limit(client) -> None:
    body = {"tokens": SQUARE, "alpha": "1/2", "exact": True, "followed": True}
    found = client.post("/api/v1/limit", json=body).json()
    li = cy.limit(cy.PureAttention(alpha="1/2"), SQUARE, exact=True)
    assert found["points"] == li.points.tolist() and found["leaders"] == li.leaders.tolist()
    assert found["exact_points"] == [[str(x) for x in row] for row in li.exact_points]
    assert found["rule"] == ["leader"] * 4 + ["G"] and found["certified"] is True
    assert found["words"] == [li.in_words(i) for i in range(5)]
    assert found["followed"] == [s.tolist() for s in cy.Hardmax().followed(SQUARE)]
    assert sorted(found["polytope"]["index"]) == [0, 1, 2, 3]


def test_the_page_links_to_the_documentation_where_it_is_built(tmp_path) -> None:
    (tmp_path / "index.html").write_text("<title>the documentation</title>")
    app = application(Settings(site=tmp_path / "index.html"))
    built, absent = (TestClient(one, base_url=HOME) for one in (app, application(Settings())))
    link = 'id="docs" data-served href="/docs/index.html"'
    assert f"<a {link}" in built.get("/").text and f"<a hidden {link}" in absent.get("/").text
    assert "the documentation" in built.get("/docs/index.html").text
    assert "'unsafe-inline'" in built.get("/docs/").headers["content-security-policy"]
    assert "'unsafe-inline'" not in built.get("/").headers["content-security-policy"]
    problem(absent.get("/docs/index.html"), 404)


def test_a_shadow_is_that_of_the_library(client) -> None:
    from cynosure.analysis.shadowing import shadow

    rule = {"name": "softmax", "beta": 6}
    asked = {"name": "pure_attention", "attention": rule, "alpha": 0.5}
    body = {"tokens": SQUARE, "dynamics": asked, "layers": 30}
    found = client.post("/api/v1/shadow", json=body).json()
    own = shadow(cy.PureAttention(cy.Softmax(6.0), 0.5), SQUARE, layers=30)
    assert found["agrees_until"] == own.agrees_until(own.tolerance).tolist()
    assert [p["clusters"] for p in found["plateaus"]] == [
        [c.tolist() for c in p.clusters] for p in own.plateaus
    ]
    refused = client.post("/api/v1/shadow", json=body | {"dynamics": {"name": "pure_attention"}})
    assert "expected PureAttention" in problem(refused, 422)["detail"]


def test_a_hull_that_takes_too_long_is_null(monkeypatch) -> None:
    from cynosure.web.answers import tokens

    def over(z, *, deadline):
        assert 0 < deadline <= 9.0
        raise TimeoutError

    asked = schema.Limit(tokens=SQUARE, deadline=9.0).model_dump()
    assert tokens.limit(asked)["hull"]["index"] is not None
    monkeypatch.setattr(tokens, "hull", over)
    assert tokens.limit(asked)["hull"] is None


def test_a_brief_answer_is_the_same_with_less_in_it(client) -> None:
    whole, brief = (
        client.post("/api/v1/limit", json={"tokens": SQUARE, "brief": less}).json()
        for less in (False, True)
    )
    assert set(whole) - set(brief) == {"rule", "words", "margin", "exact_points"}
    assert all(whole[key] == value for key, value in brief.items())


def test_numbers_reach_the_library_bit_by_bit(client) -> None:
    z = [[0.1 + 0.2, 5e-324], [-1 / 3, 1.7976931348623157e300], [1e-300, -0.0]]
    run = client.post("/api/v1/simulate", json={"tokens": z, "alpha": 0.1, "layers": 0}).json()
    assert np.array_equal(run["z"][0], z)


def test_rationals_are_taken_as_they_are(client) -> None:
    tokens = [[str(x) for x in row] for row in cy.configurations.golden_exact("G4")]
    asked = {"tokens": tokens, "alpha": "1/10", "exact": True}
    assert client.post("/api/v1/limit", json=asked).json()["born"][4] == 61


def test_other_forms_are_cautioned(client) -> None:
    asked = {"tokens": SQUARE, "A": [[0, 1], [-1, 0]], "max_layers": 50}
    found = client.post("/api/v1/limit", json=asked).json()
    assert found["definite"] is False and any("B16" in said for said in found["cautions"])


@pytest.mark.parametrize("name", forms()["dynamics"])
def test_every_dynamics_can_be_asked_for(client, name: str) -> None:
    in_time = forms()["dynamics"][name]["in_time"]
    z0 = [[1.0, 0.2], [0.3, -0.8], [-0.6, 0.5]]
    clock = {"time": 1.0} if in_time else {"layers": 3}
    found = client.post(
        "/api/v1/simulate", json={"tokens": z0, "dynamics": {"name": name}, **clock}
    )
    assert found.status_code == 200, found.text
    run = cy.simulate(cy.dynamics.DYNAMICS[name](), z0, **clock)
    assert np.array_equal(found.json()["z"], run.values) and found.json()["in_time"] == in_time


def test_fields_of_a_dynamics_arrive(client) -> None:
    spec = {"name": "pure_attention", "alpha": "1/3", "attention": {"name": "softmax", "beta": 4}}
    asked = {"tokens": SQUARE, "dynamics": spec, "layers": 4, "recognise": True}
    found = client.post("/api/v1/simulate", json=asked).json()
    run = cy.simulate(cy.PureAttention(cy.Softmax(beta=4.0), "1/3"), SQUARE, layers=4)
    assert np.array_equal(found["z"], run.values) and found["tends_to"]


def test_a_run_comes_as_npz_and_as_a_page(client, tmp_path) -> None:
    asked = {"tokens": SQUARE, "alpha": 0.5, "layers": 4}
    data = client.post("/api/v1/simulate", json=asked | {"format": "npz"}).content
    (tmp_path / "run.npz").write_bytes(data)
    assert cy.load(tmp_path / "run.npz") is not None
    assert np.array_equal(cy.load(tmp_path / "run.npz").values[0], SQUARE)
    assert "z" in np.load(io.BytesIO(data), allow_pickle=False)
    page = client.post("/api/v1/simulate", json=asked | {"format": "html"})
    assert page.headers["content-type"].startswith("text/html") and "<html" in page.text[:200]


def test_many_dimensions_are_seen_along_principal_components(client) -> None:
    z0 = np.random.default_rng(0).normal(size=(6, 5)).tolist()
    found = client.post("/api/v1/simulate", json={"tokens": z0, "layers": 2}).json()
    z = np.array(found["z"]).reshape(-1, 5)
    seen = np.array(found["view"]).reshape(-1, 3)
    values = np.linalg.eigvalsh(np.cov(z.T))[::-1]
    assert np.allclose(np.var(seen, axis=0, ddof=1), values[:3])
    assert plane(np.zeros((2, 3, 5))).shape == (2, 3, 3)


def test_theorems_on_a_run(client) -> None:
    asked = {"tokens": SQUARE, "layers": 10, "only": ["B1", "B5"]}
    found = client.post("/api/v1/check", json=asked).json()
    run = cy.simulate(cy.PureAttention(alpha=0.5), SQUARE, layers=10)
    assert [c["verdict"] for c in found["checks"]] == [
        c.verdict for c in cy.check(run, only=["B1", "B5"])
    ]


def test_control_and_removal(client) -> None:
    z = [[2.0, 0.0], [0.2, 1.0], [1.5, 0.9], [0.1, 0.1]]
    found = client.post("/api/v1/control", json={"tokens": z, "leaders": [1]}).json()
    assert cy.Hardmax(found["A"]).followed(z).leads[1]
    never = client.post("/api/v1/control", json={"tokens": z, "leaders": [3]}).json()
    assert never["feasible"] is False and never["words"] == str(cy.control(z, 3).witness)
    gone = client.post("/api/v1/control", json={"tokens": z, "remove": 0}).json()
    assert gone["moved"]["follows"] == cy.analysis.remove_leader(z, 0).follows


def test_basins_are_those_of_the_library(client) -> None:
    corners = {"corner": [-1.9, -2.1], "opposite": [2.2, 2.3], "side": 4}  # no place ties
    found = client.post("/api/v1/basins", json={"tokens": SQUARE[:4], **corners}).json()
    xs, ys = np.linspace(-1.9, 2.2, 4), np.linspace(-2.1, 2.3, 4)
    places = np.array([[x, y] for y in ys for x in xs])
    expected = basins(cy.PureAttention(alpha=0.5), np.array(SQUARE[:4], float), places)
    assert found["basin"] == expected.tolist() and len(set(found["basin"])) > 2


def test_cells_are_those_of_the_leaders(client) -> None:
    asked = {"corner": [-1.9, -2.1], "opposite": [2.2, 2.3], "side": 5, "kind": "cells"}
    A = [[2.0, 0.3], [0.3, 1.0]]
    found = client.post("/api/v1/basins", json={"tokens": SQUARE, "A": A, **asked}).json()
    v = np.array(SQUARE[:4], float)  # of the five the corners lead
    for at, label in enumerate(found["basin"]):
        x = np.array([-1.9 + 4.1 * (at % 5) / 4, -2.1 + 4.4 * (at // 5) / 4])
        assert label == np.argmax(v @ np.array(A) @ x)
    none = [[2, 3], [0, 1], [-2, 1], [-2, -3], [-2, -3]]
    answer = client.post("/api/v1/basins", json={"tokens": none, "A": [[2, -1], [2, -2]], **asked})
    assert "no token leads" in problem(answer, 422)["detail"]


def test_configurations(client) -> None:
    every = client.get("/api/v1/configurations").json()
    assert set(every) == set(cy.configurations.CONFIGURATIONS)
    for name in every:
        z = client.get(f"/api/v1/configurations/{name}").json()["tokens"]
        assert np.array_equal(z, cy.configurations.CONFIGURATIONS[name]())
    some = client.get("/api/v1/configurations/gaussian?n=7&d=3&seed=5").json()["tokens"]
    assert np.array_equal(some, cy.configurations.gaussian(7, 3, 5))
    assert client.get("/api/v1/configurations/golden?name=G1").json()["exact"][1] == [
        "-1/12",
        "1/12",
    ]


def test_texts(client) -> None:
    clf = cy.load_pretrained()
    texts = [TEXT, "", "Dull and tedious."]
    found = client.post("/api/v1/predict", json={"texts": texts}).json()
    good, nothing, bad = (row["label"] for row in found["predictions"])
    assert [good, bad] == clf.predict([texts[0], texts[2]]).tolist() == ["pos", "neg"]
    assert nothing is None, "no evidence, no verdict"
    decision = [row["decision"] for row in found["predictions"]]
    assert decision == clf.decision_function(texts).tolist()
    explained = client.post("/api/v1/explain", json={"text": TEXT}).json()
    ex = clf.explain(TEXT)
    assert explained["decision"] == ex.decision and explained["prediction"] == ex.prediction
    total = sum(leader["contribution"] for leader in explained["leaders"])
    assert abs(total + explained["intercept"] - ex.decision) < 1e-9
    assert client.get("/api/v1/models").json()["models"][0]["labels"] == ["neg", "pos"]


def test_struck_words_are_gone(client) -> None:
    """With single words struck the decision is that of the text in which they are unknown."""
    asked = {"text": TEXT, "struck": ["Wonderful"]}
    found = client.post("/api/v1/explain", json=asked).json()
    clf = cy.load_pretrained()
    # The oracle: an unknown word in its place breaks the same n-grams and adds nothing.
    assert "qzxwv" not in clf.vocabulary_.index
    gone = clf.explain(TEXT.replace("wonderful", "qzxwv"))
    assert found["decision"] == pytest.approx(gone.decision, abs=1e-12)
    assert found["probability"] == pytest.approx(gone.probability, abs=1e-12)
    assert found["decision"] < clf.explain(TEXT).decision


def test_every_line_of_curl_in_the_docs_works(client, monkeypatch) -> None:
    """Each is parsed as a shell would and sent; none may be left out."""
    monkeypatch.syspath_prepend(ROOT / "docs")
    from _http import http_page

    page = http_page()
    lines = re.findall(r"^```sh\n(curl .*?)\n```$", page, re.M | re.S)
    assert len(lines) == page.count("curl -s ") >= 13
    for line in lines:
        words = shlex.split(line)
        path = words[2].removeprefix("localhost:8765")
        if "-d" in words:
            key, _, value = words[words.index("-H") + 1].partition(": ")
            sent = words[words.index("-d") + 1]
            answer = client.post(path, content=sent, headers={key: value})
        else:
            answer = client.get(path)
        assert answer.status_code == 200, (line, answer.text)


def test_bounds_and_reference(client) -> None:
    assert client.get("/api/v1/bounds").json()["tokens"] == BOUNDS["tokens"]
    paths = client.get("/openapi.json").json()["paths"]
    named = "configurations dynamics simulate limit check control predict explain trace heads"
    assert {f"/api/v1/{name}" for name in [*named.split(), "experiments"]} <= set(paths)


# --- refusals ------------------------------------------------------------------------------------

REFUSED = [
    ("limit", {}, "tokens"),
    ("limit", {"tokens": []}, "tokens"),
    ("limit", {"tokens": [[1, 2], [3]]}, "one length"),
    ("limit", {"tokens": [[1, 2]], "alpha": -1}, "positive"),
    ("limit", {"tokens": [[1, 2]], "alpha": "1/0"}, "alpha"),
    ("limit", {"tokens": [["1e99999", 2]]}, "tokens"),
    ("limit", {"tokens": [[1, 2]], "A": [[1]]}, "A"),
    ("limit", {"tokens": [[1, 2]], "colour": "red"}, "colour"),
    ("limit", {"tokens": [[0] * 2] * 5001}, "tokens"),
    ("limit", {"tokens": [[0] * 64] * 1600}, "numbers"),
    ("simulate", {"tokens": SQUARE, "layers": 10_001}, "layers"),
    ("simulate", {"tokens": SQUARE, "dynamics": {"name": "magic"}}, "pure_attention"),
    ("simulate", {"tokens": SQUARE, "dynamics": {"name": "sphere_flow", "beta": 1}}, "beta"),
    ("simulate", {"tokens": SQUARE, "dynamics": {"name": "jump_chain", "g": "x"}}, "g"),
    ("simulate", {"tokens": SQUARE, "dynamics": {"name": "feed_forward", "W1": [[1]]}}, "W1"),
    ("simulate", {"tokens": SQUARE, "time": 3.0}, "layers"),
    ("simulate", {"tokens": [[0.5] * 50] * 500, "layers": 10_000}, "save_every"),
    ("check", {"tokens": SQUARE, "only": ["Z9"]}, "Z9"),
    ("control", {"tokens": SQUARE}, "either"),
    ("control", {"tokens": SQUARE, "leaders": [9]}, "0 to 4"),
    ("basins", {"tokens": [[1, 2, 3]], "corner": [0, 0], "opposite": [1, 1]}, "plane"),
    ("predict", {"texts": ["x"] * 1001}, "texts"),
    ("predict", {"texts": ["x"], "model": "../secret"}, "model"),
    ("explain", {"text": "x" * 100_001}, "text"),
    ("explain", {"text": "x", "label": "maybe"}, "neg, pos"),
    ("trace", {"text": "x"}, "--transformer"),
    ("heads", {}, "--transformer"),
]


@pytest.mark.parametrize(("route", "body", "word"), REFUSED)
def test_what_cannot_be_done_is_refused_by_name(client, route: str, body: dict, word: str) -> None:
    said = problem(client.post(f"/api/v1/{route}", json=body), 422)
    assert word in json.dumps(said)


def nested(depth: int) -> bytes:
    """A body whose lists and objects are `depth` deep, brackets in its texts not counted."""
    inner = b'{"[": ' * (depth - 1) + b'"[{[{"' + b"}" * (depth - 1)
    return b'{"text": "x", "model": ' + inner + b"}"


BROKEN = {
    "cut": b"{", "bytes": b"\xff\xfe", "nan": b'{"tokens": [[NaN]]}', "deep": b"[" * 100_000,
    "surrogate": b'{"text": "\\ud800"}', "deeper than is written": nested(900),
    "one too deep": nested(int(BOUNDS["nesting"]) + 1),
}  # fmt: skip


@pytest.mark.parametrize("body", BROKEN.values(), ids=BROKEN)
def test_what_is_no_json_is_refused(client, body: bytes) -> None:
    head = {"Content-Type": "application/json"}
    problem(client.post("/api/v1/explain", content=body, headers=head), 400)
    fits = nested(int(BOUNDS["nesting"]))  # read, and refused for what it holds
    problem(client.post("/api/v1/explain", content=fits, headers=head), 422)
    brackets = json.dumps({"text": "[{" * 200})
    assert client.post("/api/v1/explain", content=brackets, headers=head).status_code == 200


@pytest.mark.parametrize(
    "body",
    [
        b'{"text": "good", "text": "bad"}',
        b'{"text": "x", "struck": [{"a": 1, "\\u0061": 2}]}',
        b'{"text": "x", "model": ' + b"9" * 5000 + b"}",
    ],
)
def test_keys_that_are_there_twice_and_endless_numbers_are_refused(client, body: bytes) -> None:
    head = {"Content-Type": "application/json"}
    problem(client.post("/api/v1/explain", content=body, headers=head), 400)


def test_framing_that_can_be_read_in_two_ways_is_refused(client) -> None:
    head = {"Content-Type": "application/json"}
    body = b'{"text": "good"}'
    both = head | {"Content-Length": str(len(body)), "Transfer-Encoding": "chunked"}
    answer = client.post("/api/v1/explain", content=body, headers=both)
    assert "both" in problem(answer, 400)["detail"] and answer.headers["connection"] == "close"
    for packed in ("gzip", "br", "identity, gzip", "unheard-of"):
        answer = client.post(
            "/api/v1/explain", content=body, headers=head | {"Content-Encoding": packed}
        )
        assert "Content-Encoding" in problem(answer, 415)["detail"]
    plain = client.post(
        "/api/v1/explain", content=body, headers=head | {"Content-Encoding": "identity"}
    )
    assert plain.status_code == 200
    for host in ("[::1]evil.com", "localhost:80:80", "localhost@evil.com", "[::1", "a b"):
        problem(client.get("/api/v1/bounds", headers={"Host": host}), 400)


def test_the_address_is_judged_before_the_body(client) -> None:
    """404 and 405 with what is allowed there, whatever the body is called."""
    problem(client.post("/api/v1/nothing", content=b"x"), 404)
    for path, allowed in {
        "/api/v1/bounds": "GET",
        "/api/v1/limit": "POST",
        "/api/v1/experiments/runs/x-00000000": "DELETE, GET",
        "/": "GET, HEAD",
    }.items():
        answer = client.request("PATCH", path, content=b"x")
        problem(answer, 405)
        assert answer.headers["allow"] == allowed
        if "POST" not in allowed:
            problem(client.post(path, content=b"x"), 405)


def test_lines_of_progress_hold_no_files(client) -> None:
    asked = {"tokens": SQUARE, "layers": 2, "format": "npz"}
    head = {"Accept": "application/x-ndjson"}
    last = client.post("/api/v1/simulate", json=asked, headers=head).text.splitlines()[-1]
    assert json.loads(last)["problem"]["status"] == 422


def test_a_body_that_does_not_come_is_not_waited_for(monkeypatch) -> None:
    """Told so within the time a request may take, and the connection is not used again."""
    monkeypatch.setitem(BOUNDS, "arrival_seconds", 0.05)
    sent: list[dict] = []

    async def slow() -> dict:
        if not sent_part:
            sent_part.append(True)
            return {"type": "http.request", "body": b'{"tokens"', "more_body": True}
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: dict) -> None:
        sent.append(message)

    sent_part: list[bool] = []
    head = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/api/v1/limit", "headers": head}
    asyncio.run(application(Settings(workers=0))(scope, slow, send))
    assert sent[0]["status"] == 408 and (b"connection", b"close") in sent[0]["headers"]
    assert "9 bytes" in json.loads(sent[1]["body"])["detail"]


@asynccontextmanager
async def _listening(app):
    """(port, connections) of that application behind connections of ours."""
    import uvicorn
    from uvicorn.server import ServerState

    config, state = uvicorn.Config(app, log_level="error", lifespan="off"), ServerState()
    config.load()
    how = {"config": config, "server_state": state, "app_state": {}}
    loop = asyncio.get_running_loop()
    listening = await loop.create_server(lambda: _Connection(**how), "127.0.0.1", 0)
    try:
        yield listening.sockets[0].getsockname()[1], state.connections
    finally:
        listening.close()


def _sends(size: int):
    """An application that answers with so many bytes, counted while anything holds them."""

    async def app(scope, receive, send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": memoryview(pools.Held(size))})

    return app


ASK = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


def test_an_answer_that_is_not_read_is_dropped_and_one_read_slowly_is_not(monkeypatch) -> None:
    size, most = 32 << 20, 0
    monkeypatch.setitem(BOUNDS, "arrival_seconds", 1.0)

    async def ask(port: int, pause: float) -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 16)
        writer.write(ASK)
        came = 0
        try:
            await asyncio.sleep(pause)
            while part := await reader.read(1 << 20):
                came += len(part)
                await asyncio.sleep(0.005)
        except ConnectionError:
            pass
        writer.transport.abort()
        return came

    async def scenario() -> None:
        nonlocal most
        app = connections._roomy(_sends(size), lambda: ())
        async with _listening(app) as (port, there):
            clients = asyncio.gather(ask(port, 4.0), ask(port, 0.0))
            while not clients.done():  # one copy of an answer, and a piece that is being sent
                most = max(most, pools.Held.total + sum(one.pending for one in there))
                await asyncio.sleep(0.01)
            left, read = clients.result()
            await asyncio.sleep(0.05)
            assert left < size <= read and not there

    before = pools.Held.total
    asyncio.run(scenario())
    assert size < most - before <= 2 * (size + connections.PIECE + (1 << 16))
    assert pools.Held.total == before


def test_requests_are_refused_while_too_much_is_not_read(monkeypatch) -> None:
    monkeypatch.setattr(connections, "MOST_PENDING", 1 << 16)

    async def scenario() -> None:
        held: list = []
        app = connections._roomy(_sends(16 << 20), lambda: held[0])
        async with _listening(app) as (port, there):
            held.append(there)
            _, lazy = await asyncio.open_connection("127.0.0.1", port, limit=1 << 16)
            lazy.write(ASK)
            while not any(one.pending > 1 << 16 for one in there):
                await asyncio.sleep(0.01)
            reader, other = await asyncio.open_connection("127.0.0.1", port)
            other.write(ASK)
            answer = await asyncio.wait_for(reader.read(), 20)
            other.transport.abort()
            assert answer.startswith(b"HTTP/1.1 503") and b"retry-after: 30" in answer.lower()
            lazy.transport.abort()
            while there:
                await asyncio.sleep(0.01)
            reader, other = await asyncio.open_connection("127.0.0.1", port)
            other.write(ASK)
            assert (await asyncio.wait_for(reader.read(), 20)).startswith(b"HTTP/1.1 200")
            other.transport.abort()
            await asyncio.sleep(0.05)

    asyncio.run(scenario())


@pytest.mark.parametrize("long", [0, 1, 5, 6, 10, 11, 15])
def test_pieces_make_the_body(monkeypatch, long) -> None:
    monkeypatch.setattr(connections, "PIECE", 5)
    sent: list[dict] = []

    async def send(message: dict) -> None:
        sent.append(message)

    async def app(scope, receive, send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for more in (True, False):
            body = bytes(range(long))
            await send({"type": "http.response.body", "body": body, "more_body": more})

    asyncio.run(connections._roomy(app, lambda: ())({"type": "http"}, None, send))
    bodies = [bytes(message["body"]) for message in sent[1:]]
    assert b"".join(bodies) == 2 * bytes(range(long)) and max(map(len, bodies)) <= 5
    more = [message.get("more_body", False) for message in sent[1:]]
    assert all(more[:-1]) and not more[-1]


def test_more_clients_than_descriptors_are_told_so_in_few_words() -> None:
    resource = pytest.importorskip("resource")
    code = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))\n"
    code += "from cynosure.web.connections import serve\n"
    code += "from cynosure.web.server import Settings\n"
    code += "serve(Settings(workers=1), '127.0.0.1', 0, lambda where: print(where, flush=True))"
    running = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert running.stdout is not None and running.stderr is not None and resource
    port = int(running.stdout.readline().decode().rstrip("/\n").rpartition(":")[2])
    clients = []
    try:
        for _ in range(300):
            clients.append(socket.create_connection(("127.0.0.1", port), 30))
        told, until = [], time.monotonic() + 30
        while len(told) <= 100 and time.monotonic() < until:
            time.sleep(0.5)
            told = [c for c in clients if select.select([c], [], [], 0)[0]]
        answers = [c.recv(1 << 16) for c in told]
        assert len(told) > 100 and all(a.startswith(b"HTTP/1.1 503") for a in answers if a)
        assert any(b"Retry-After" in a or b"retry-after" in a for a in answers)
        for c in clients:
            c.close()
        time.sleep(0.5)
        with socket.create_connection(("127.0.0.1", port), 30) as c:
            c.sendall(b"GET /api/v1/bounds HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert c.recv(64).startswith(b"HTTP/1.1 200")
    finally:
        running.terminate()
        said = running.communicate(timeout=60)[1]
    assert len(said) < 1000 and b"Traceback" not in said, said[:2000]


def test_connections_that_say_nothing_are_closed(monkeypatch) -> None:
    """Silent ones and those that stop in mid-head; one that asks is answered."""
    monkeypatch.setitem(BOUNDS, "arrival_seconds", 0.1)

    async def app(scope, receive, send) -> None:
        await asyncio.sleep(0.2)  # longer than a head may take: an answer may
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def scenario() -> None:
        answers = {}
        whole = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
        async with _listening(app) as (port, _):
            for said in (b"", b"GET / HTTP/1.1\r\nHost", whole):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(said)
                answers[said] = await asyncio.wait_for(reader.read(), 20)
                writer.close()
        assert [answer[:12] for answer in answers.values()] == [b"", b"", b"HTTP/1.1 204"]

    asyncio.run(scenario())


def test_sizes_media_and_addresses(client) -> None:
    large = b" " * (int(BOUNDS["body_bytes"]) + 1)
    head = {"Content-Type": "application/json"}
    problem(client.post("/api/v1/limit", content=large, headers=head), 413)
    parts = (large[i : i + 65536] for i in range(0, len(large), 65536))  # without a length
    problem(client.post("/api/v1/limit", content=parts, headers=head), 413)
    problem(client.post("/api/v1/limit", content=b"x=1"), 415)
    problem(client.get("/api/v1/limit"), 405)
    problem(client.get("/api/v1/nothing"), 404)
    assert client.head("/").status_code == 200
    problem(client.get("/api/v1/experiments/runs/"), 404)
    problem(client.get("/static/../server.py"), 404)
    problem(client.get("/static/%2e%2e/server.py"), 404)
    problem(client.get("/api/v1/configurations/nothing"), 422)
    problem(client.get("/api/v1/configurations/gaussian?n=1000000"), 422)
    problem(client.get("/api/v1/configurations/gaussian?n=many"), 422)


def test_other_hosts_and_origins_are_refused(client) -> None:
    body = {"json": {"tokens": SQUARE}}
    problem(client.get("/", headers={"Host": "rebound.example"}), 421)
    for origin in ("http://rebound.example", "http://localhost:1", "null"):
        problem(client.post("/api/v1/limit", headers={"Origin": origin}, **body), 403)
    problem(client.post("/api/v1/limit", headers={"Sec-Fetch-Site": "cross-site"}, **body), 403)
    ours = client.post("/api/v1/limit", headers={"Origin": HOME}, **body)
    assert ours.status_code == 200
    for host in ("127.0.0.1:8765", "[::1]:8765", "localhost"):
        assert client.get("/", headers={"Host": host}).status_code == 200
    assert "access-control-allow-origin" not in ours.headers


def test_every_answer_is_sealed(client) -> None:
    for path in ("/", "/static/icon.svg", "/api/v1/bounds", "/nothing"):
        head = client.get(path).headers
        policy = head["content-security-policy"]
        assert "unsafe" not in policy and "default-src 'none'" in policy
        assert head["x-content-type-options"] == "nosniff"
        assert head["referrer-policy"] == "no-referrer"


TOKEN = 'a+b a&b=c#d;"e"\\,%41'.replace(" ", "-")


def test_another_host_needs_a_token() -> None:
    with pytest.raises(ValueError, match="token"):
        serve(Settings(), "0.0.0.0", 0)
    for easy in ("", "short", "fifteen-letters", "sixteen letters with blanks", "ä" * 20):
        with pytest.raises(ValueError, match="16 characters"):
            application(Settings(workers=0, token=easy))
        with pytest.raises(ValueError, match="16 characters"):
            serve(Settings(token=easy), "0.0.0.0", 0)
    app = application(Settings(workers=0, token=TOKEN))
    with TestClient(app, base_url="http://192.0.2.1:8765", follow_redirects=False) as far:
        problem(far.get("/"), 401)
        problem(far.get("/?token=wrong"), 401)
        problem(far.get("/", headers={"Authorization": "Bearer wrong"}), 401)
        problem(far.get("/", headers={"Cookie": "cynosure_token=wrong; a=b"}), 401)
        named = {"Authorization": f"Bearer {TOKEN}"}
        assert far.get("/api/v1/bounds", headers=named).status_code == 200
        welcome = far.get(f"/?{urlencode({'token': TOKEN})}")
        assert welcome.status_code == 303
        cookie = welcome.headers["set-cookie"].lower()
        assert "httponly" in cookie and "samesite=strict" in cookie
        assert far.get("/").status_code == 200, "the cookie that was set lets in"


def test_the_printed_link_lets_in(monkeypatch) -> None:
    """Whatever characters the token has."""
    import httpx

    from cynosure.web import connections

    class Silent:
        server_state = SimpleNamespace(connections=())

        def __init__(self, config) -> None:
            self.app = config.app

        async def serve(self, sockets) -> None:
            how = {"transport": httpx.ASGITransport(self.app), "base_url": printed[0]}
            async with httpx.AsyncClient(**how) as far:
                assert (await far.get(printed[0])).status_code == 303
                assert (await far.get("/")).status_code == 200

    printed: list[str] = []
    monkeypatch.setattr(connections, "_Server", Silent)
    serve(Settings(workers=0, token=TOKEN), "127.0.0.1", 0, printed.append)
    assert len(printed) == 1


def test_addresses_that_cannot_be_listened_at(monkeypatch) -> None:
    long = Settings(token="x" * 20)
    for host in ("", " "):
        with pytest.raises(ValueError, match="--host: expected a name or address"):
            serve(long, host, 0)
    with pytest.raises(ValueError, match=r"--host nosuch\.invalid: .* --host 127\.0\.0\.1"):
        serve(long, "nosuch.invalid", 0)

    class Taken(socket.socket):
        def bind(self, address: Any) -> None:
            raise OSError(98, "Address already in use")

    monkeypatch.setattr(connections.socket, "socket", Taken)
    for port, other in ((65535, 8765), (8765, 8766), (80, 8765), (9000, 9001)):
        with pytest.raises(ValueError, match=f"port {port} of localhost .* try --port {other}$"):
            serve(long, "localhost", port)


def test_a_busy_port_is_one_clear_line() -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ValueError, match=f"port {port} .* --port {port + 1}"):
            serve(Settings(), "127.0.0.1", port)


def test_the_command(capsys, tmp_path, monkeypatch) -> None:
    from cynosure.cli import main
    from cynosure.cli.environment import missing_extra

    assert main(["serve", "--model", str(tmp_path)]) == 2
    assert "expected a folder with model.json" in capsys.readouterr().err
    asked = []
    monkeypatch.setattr("cynosure.web.connections.serve", lambda *args: asked.append(args))
    cy.load_pretrained().save(tmp_path / "mine")
    assert main(["serve", "--model", str(tmp_path / "mine"), "--port", "0"]) == 0
    assert main(["serve", "--host", "0.0.0.0"]) == 0
    cy.load_pretrained().save(tmp_path / "pack" / "model")
    assert main(["serve", "--model", str(tmp_path / "pack" / "model")]) == 0
    (plain, host, port, _), (open_, *_), (packed, *_) = asked
    assert list(packed.models) == ["pack"], "a folder called model is named by the one around it"
    assert dict(plain.models) == {"mine": str(tmp_path / "mine")} and plain.token is None
    assert (host, port) == ("127.0.0.1", 0) and len(open_.token) >= 32
    assert "cynosure[web]" in missing_extra(ImportError(name="starlette"))


def test_a_model_of_ones_own_is_read_from_its_folder(tmp_path) -> None:
    data = cy.datasets.synthetic(60)
    cy.HardmaxClassifier(leaders=6).fit(data.texts, data.labels).save(tmp_path / "mine")
    answers = text_answers({"mine": str(tmp_path / "mine")})
    names = [one["name"] for one in answers["models"]({})["models"]]
    assert names == ["mine", "imdb"]
    found = answers["predict"]({"texts": data.texts[:5]})
    assert found["labels"] == ["negative", "positive"]
    three = cy.HardmaxClassifier(leaders=4).fit(["a b", "c d", "e f"] * 4, ["x", "y", "z"] * 4)
    three.save(tmp_path / "three")
    answers = text_answers({"three": str(tmp_path / "three")})
    (row,) = answers["predict"]({"texts": ["c d"]})["predictions"]
    assert row["label"] == "y" and row["decision"] == pytest.approx(
        three.decision_function(["c d"])[0, 1]
    )
    explained = answers["explain"]({"text": "c d", "label": None, "struck": []})
    assert explained["prediction"] == "y"


# --- anything at all -----------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)
NUMBERS = st.floats(-1e3, 1e3) | st.integers(-9, 9) | st.sampled_from([0.0, 1e308, -1e-320, "1/3"])
TOKENS = st.integers(1, 3).flatmap(
    lambda d: st.lists(st.lists(NUMBERS, min_size=d, max_size=d), min_size=1, max_size=6)
)
NAMED = st.sampled_from([*forms()["dynamics"], "nothing"])
FIELDS = {
    "tokens": TOKENS,
    "alpha": NUMBERS,
    "A": st.lists(st.lists(st.floats(-9, 9), min_size=2, max_size=2), min_size=2, max_size=2),
    "exact": st.booleans(),
    "max_layers": st.integers(0, 60),
    "layers": st.integers(-1, 40),
    "time": st.floats(0.1, 2.0),
    "dynamics": st.fixed_dictionaries({"name": NAMED}, optional={"alpha": NUMBERS, "V": JSON}),
    "leaders": st.lists(st.integers(0, 6), max_size=1),
    "remove": st.integers(0, 6),
    "only": st.lists(st.sampled_from(["B1", "B3", "B5", "?"]), min_size=1, max_size=2),
    "text": st.text(max_size=60),
    "texts": st.lists(st.text(max_size=40), max_size=4),
    "struck": st.lists(st.text(max_size=9), max_size=3),
    "corner": st.lists(st.floats(-3, 3), min_size=2, max_size=2),
    "opposite": st.lists(st.floats(-3, 3), min_size=2, max_size=2),
    "side": st.integers(0, 9),
    "quick": st.booleans(),
    "params": JSON,
}
KNOWN = {
    "limit": "tokens alpha A exact max_layers",
    "basins": "tokens alpha corner opposite side",
    "simulate": "tokens alpha A layers time dynamics",
    "check": "tokens alpha layers only",
    "control": "tokens leaders remove A",
    "shadow": "tokens dynamics layers",
    "predict": "texts",
    "explain": "text struck",
    "trace": "text layers",
    "heads": "layers text",
    "experiments/nothing": "quick params",
}


@st.composite
def requests(draw) -> tuple[str, object]:
    """A route and a body: mostly of its own fields, sometimes anything."""
    route = draw(st.sampled_from(sorted(KNOWN)))
    if draw(st.integers(0, 3)) == 0:
        return route, draw(JSON)
    body = {name: draw(FIELDS[name]) for name in KNOWN[route].split() if draw(st.integers(0, 4))}
    if draw(st.integers(0, 5)) == 0 and body:
        body[draw(st.sampled_from(sorted(body)))] = draw(JSON)
    return route, body


@settings(max_examples=200, suppress_health_check=list(HealthCheck))
@given(asked=requests())
def test_random_json_is_done_or_refused(client, asked) -> None:
    route, body = asked
    text = json.dumps(body).encode("utf-8", "replace")
    head = {"Content-Type": "application/json"}
    answer = client.post(f"/api/v1/{route}", content=text, headers=head)
    assert answer.status_code < 500, (route, body, answer.text)
    if answer.status_code >= 400:
        problem(answer, answer.status_code)


WORDS = st.text(max_size=12) | st.sampled_from(
    ["..", "/", "%00", "nan", "1e999", "-1", "imdb", "gaussian"]
)
PLACES = ["configurations/{}", "models/{}/card.html", "experiments/runs/{}", "{}"]
PLACES += ["experiments/runs/{}/events", "experiments/runs/{}/report.html"]


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(place=st.sampled_from(PLACES), word=WORDS, query=st.dictionaries(WORDS, WORDS, max_size=3))
def test_random_addresses_are_there_or_not(client, place: str, word: str, query: dict) -> None:
    from urllib.parse import quote

    path = f"/api/v1/{place.format(quote(word.encode('utf-8', 'replace'), safe=''))}"
    sent = {k.encode("utf-8", "replace"): v.encode("utf-8", "replace") for k, v in query.items()}
    answer = client.get(path, params=sent)
    assert answer.status_code < 500, (path, query, answer.text)
    if answer.status_code >= 400:
        problem(answer, answer.status_code)


# --- processes -----------------------------------------------------------------------------------


async def _stays() -> bool:
    return False


LANE = Settings().lane("maths")
# All theorems on some thousand tokens: far more than ten seconds.
SLOW = {"tokens": cy.configurations.gaussian(5000, 3).tolist(), "only": None}
QUICK = {"name": "gaussian", "params": {"n": "3"}}


def _with_pool(size: int, slow: int, scenario) -> None:
    async def go() -> None:
        pool = Pool(LANE, size, slow)
        try:
            await scenario(pool)
        finally:
            await pool.close()

    asyncio.run(go())


def test_a_slow_request_holds_nobody_up(monkeypatch) -> None:
    """With one place, a quick request asked after a slow one is answered before it."""
    monkeypatch.setattr(pools, "MOMENT", 0.05)
    order = []

    async def scenario(pool: Pool) -> None:
        async def ask(call: str, asked: dict) -> None:
            await pool.run(call, asked, 60.0, _stays)
            order.append(call)

        await ask("configurations", QUICK)
        slow = asyncio.create_task(ask("check", SLOW))
        await asyncio.sleep(0.02)
        await ask("configurations", QUICK)
        slow.cancel()

    _with_pool(1, 1, scenario)
    assert order == ["configurations", "configurations"]


def test_what_takes_too_long_is_stopped_and_the_next_is_done(monkeypatch) -> None:
    monkeypatch.setattr(pools, "GRACE", 0.0)

    async def scenario(pool: Pool) -> None:
        with pytest.raises(Refusal, match="stopped") as refused:
            await pool.run("check", SLOW, 0.2, _stays)
        assert refused.value.status == 422
        answer = await pool.run("configurations", QUICK, 60.0, _stays)
        assert json.loads(answer.body)["tokens"]

    _with_pool(1, 0, scenario)


STAND_IN = """
import sys, time
from cynosure.web.workers.worker import HEAD, _read, _write
out = sys.stdout.buffer
_read(sys.stdin.buffer)
_write(out, b"P", b"{}")
_read(sys.stdin.buffer)
_write(out, b"K", sys.argv[1].encode())
time.sleep(1.6)
_write(out, b"K", b"0")
_write(out, b"R", b"{}")
"""


LONG = """
import sys
from cynosure.web.workers.worker import HEAD, _read, _write
out = sys.stdout.buffer
_read(sys.stdin.buffer)
_write(out, b"P", b"{}")
for kind in (b"R", b"R", b"F", b"R"):
    _read(sys.stdin.buffer)
    _write(out, kind, b"a/b\\n" * 250_000)
_read(sys.stdin.buffer)
out.write(HEAD.pack(b"R", 1_000_000) + bytes(500_000))
"""


def test_answers_that_nobody_has_taken_are_bounded(monkeypatch) -> None:
    """Two answers of 1 MB are held; a third is dropped, by a worker that lives, until one is."""
    before = pools.Held.total
    monkeypatch.setitem(BOUNDS, "held_bytes", before + 2_500_000)

    async def start(cls):
        pipe = asyncio.subprocess.PIPE
        line = [sys.executable, "-c", LONG]
        return cls(await asyncio.create_subprocess_exec(*line, stdin=pipe, stdout=pipe))

    monkeypatch.setattr(pools._Worker, "start", classmethod(start))

    async def scenario(pool: Pool) -> None:
        held = [await pool.run("limit", {}, 20.0, _stays) for _ in range(2)]
        assert all(bytes(one.body) == b"a/b\n" * 250_000 for one in held)
        with pytest.raises(Refusal, match="1 MB wait") as refused:
            await pool.run("limit", {}, 20.0, _stays)
        assert (refused.value.status, refused.value.retry) == (503, 30)
        assert len(pool.processes) == 1 and pools.Held.total - before == 2_000_000
        del held[0]
        assert len((await pool.run("limit", {}, 20.0, _stays)).body) == 1_000_000
        held.clear()
        with pytest.raises(Refusal, match="died") as died:
            await pool.run("limit", {}, 20.0, _stays)
        assert pools.Held.total == before and died.value.status == 500

    _with_pool(1, 0, scenario)


@pytest.mark.parametrize("compiling", [True, False])
def test_the_time_in_which_a_worker_compiles_does_not_count(monkeypatch, compiling) -> None:
    """A worker that sleeps for 1.6 s, where 0.8 s are allowed; in one case it says: compiling."""
    monkeypatch.setattr(pools, "GRACE", 0.0)
    monkeypatch.setattr(pools, "MOMENT", 0.05)

    async def start(cls):
        line = [sys.executable, "-c", STAND_IN, "1" if compiling else "0"]
        pipe = asyncio.subprocess.PIPE
        return cls(await asyncio.create_subprocess_exec(*line, stdin=pipe, stdout=pipe))

    monkeypatch.setattr(pools._Worker, "start", classmethod(start))

    async def scenario(pool: Pool) -> None:
        if compiling:
            assert (await pool.run("limit", {}, 0.8, _stays)).body == b"{}"
            return
        with pytest.raises(Refusal, match="stopped"):
            await pool.run("limit", {}, 0.8, _stays)

    _with_pool(1, 0, scenario)


SLEEPY = """
import sys, time
from cynosure.web.workers.worker import HEAD, _read, _write
out = sys.stdout.buffer
_read(sys.stdin.buffer)
_write(out, b"P", b"{}")
_read(sys.stdin.buffer)
_write(out, b"P", b"{}")
out.write(HEAD.pack(b"R", 1_000) + bytes(10_000_000))
"""


def test_the_server_stops_though_a_killed_worker_had_more_to_say(monkeypatch) -> None:
    """asyncio waits for the end of a pipe, which it does not see while the reader is full."""

    async def start(cls):
        line, pipe = [sys.executable, "-c", SLEEPY], asyncio.subprocess.PIPE
        return cls(await asyncio.create_subprocess_exec(*line, stdin=pipe, stdout=pipe))

    monkeypatch.setattr(pools._Worker, "start", classmethod(start))

    async def scenario(pool: Pool) -> None:
        assert len((await pool.run("limit", {}, 20.0, _stays)).body) == 1_000
        await asyncio.sleep(0.5)  # the reader fills
        await asyncio.wait_for(pool.close(), 20)
        assert not pool._all

    _with_pool(1, 0, scenario)


def test_a_machine_too_busy_to_start_a_process_is_told_as_such(monkeypatch) -> None:
    monkeypatch.setattr(pools, "STARTING", 0.2)

    async def start(cls):
        line, pipe = [sys.executable, "-c", "input()"], asyncio.subprocess.PIPE
        return cls(await asyncio.create_subprocess_exec(*line, stdin=pipe, stdout=pipe))

    monkeypatch.setattr(pools._Worker, "start", classmethod(start))

    async def scenario(pool: Pool) -> None:
        pool.prepare()
        with pytest.raises(Refusal, match="too busy") as refused:
            await pool.run("limit", {}, 20.0, _stays)
        assert (refused.value.status, refused.value.retry) == (503, 1)
        assert not pool.processes

    _with_pool(1, 0, scenario)


@pytest.mark.slow
def test_a_client_that_leaves_stops_its_computation() -> None:
    async def left() -> bool:
        return True

    async def scenario(pool: Pool) -> None:
        pool.patience = 0.0
        await pool.run("configurations", QUICK, 60.0, _stays)
        (before,) = pool.processes
        with pytest.raises(Refusal) as refused:
            await pool.run("check", SLOW, 60.0, left)
        assert refused.value.status == 499
        await asyncio.sleep(0.1)
        assert before not in pool.processes

    _with_pool(1, 0, scenario)


def test_a_process_that_dies_fails_its_own_request_only() -> None:
    import os
    import signal

    async def scenario(pool: Pool) -> None:
        await pool.run("configurations", QUICK, 60.0, _stays)
        (victim,) = pool.processes
        ask = pool.run("check", SLOW, 60.0, _stays)
        asked = asyncio.create_task(ask)
        await asyncio.sleep(0.2)
        os.kill(victim, getattr(signal, "SIGKILL", signal.SIGTERM))
        with pytest.raises(Refusal, match="died") as refused:
            await asked
        assert refused.value.status == 500
        assert (await pool.run("configurations", QUICK, 60.0, _stays)).body

    _with_pool(1, 0, scenario)


def test_a_process_that_died_while_nobody_asked_is_replaced() -> None:
    import os
    import signal

    async def scenario(pool: Pool) -> None:
        await pool.run("configurations", QUICK, 60.0, _stays)
        (victim,) = pool.processes
        os.kill(victim, getattr(signal, "SIGKILL", signal.SIGTERM))
        while pool.processes:
            await asyncio.sleep(0.01)
        assert (await pool.run("configurations", QUICK, 60.0, _stays)).body

    _with_pool(1, 0, scenario)


def test_who_waits_when_the_server_stops_is_told_so() -> None:
    """Those computing, those in the queue and those that come later; no process is left."""

    async def scenario(pool: Pool) -> None:
        await pool.run("configurations", QUICK, 60.0, _stays)
        asked = [asyncio.create_task(pool.run("check", SLOW, 60.0, _stays)) for _ in range(3)]
        await asyncio.sleep(0.05)
        await pool.close()
        ended = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(one) for one in ended] == [Refusal] * 3, ended
        assert {one.status for one in ended} == {503}
        with pytest.raises(Refusal) as refused:
            await pool.run("configurations", QUICK, 60.0, _stays)
        assert refused.value.status == 503 and not pool.processes

    _with_pool(1, 0, scenario)


def test_a_run_that_is_waited_for_ends_with_the_server(tmp_path) -> None:
    """Its events end too: a stream nobody ends would hold the server up."""

    async def scenario(pool: Pool) -> None:
        gallery = Gallery(pool, tmp_path, kept=True)
        id_ = gallery.start("basins", False, {})["id"]
        told = asyncio.create_task(_all(gallery.events(id_)))
        await asyncio.sleep(0.05)
        await gallery.close()
        last = json.loads((await asyncio.wait_for(told, 20))[-1].removeprefix("data: "))
        assert last["state"] == "cancelled" and "stopped" in last["what"]

    async def _all(stream) -> list[str]:
        return [line async for line in stream]

    _with_pool(1, 0, scenario)


def test_an_experiment_that_waits_is_cancelled_at_once(tmp_path) -> None:
    """And so is one that has not begun to wait, and one cancelled twice; their places are free."""

    async def scenario(pool: Pool) -> None:
        await pool.run("configurations", QUICK, 60.0, _stays)
        busy = asyncio.create_task(pool.run("check", SLOW, 60.0, _stays))
        gallery = Gallery(pool, tmp_path, kept=True)
        waits = gallery.start("basins", False, {})["id"]
        await asyncio.sleep(0.05)
        for id_ in (waits, gallery.start("basins", False, {})["id"]):
            ends = asyncio.gather(gallery.cancel(id_), gallery.cancel(id_))
            first, second = await asyncio.wait_for(ends, 5)
            assert first["state"] == second["state"] == "cancelled" == first["what"]
        assert not busy.done() and not any(
            run.state["state"] == "waiting" for run in gallery.runs.values()
        )
        busy.cancel()
        await gallery.close()

    _with_pool(1, 0, scenario)


def test_too_many_waiting_are_told_when_to_come_again(client) -> None:
    async def scenario(pool: Pool) -> None:
        pool.waiting, pool._usual = 0, 0.1
        with pytest.raises(Refusal, match="again in 1 s") as refused:
            await pool.run("configurations", QUICK, 60.0, _stays)
        assert (refused.value.status, refused.value.retry) == (503, 1)
        pool.waiting, pool.longest, pool._usual, pool._many.queue = 9, 60.0, 30.0, 4
        with pytest.raises(Refusal) as refused:  # 4 of 30 s in one place: 60 s too many
            await pool.run("configurations", QUICK, 60.0, _stays)
        assert refused.value.retry == 60
        pool._many.queue = 2
        await pool.run("configurations", QUICK, 60.0, _stays)
        assert pool._usual < 30.0

    _with_pool(1, 0, scenario)
    app = client.app.app
    pool = app.state.processes.maths
    pool.waiting = 0
    try:
        answer = client.post(
            "/api/v1/check", json={"tokens": SQUARE, "dynamics": {"kind": "hardmax"}}
        )
    finally:
        pool.waiting = int(BOUNDS["waiting_requests"])
    assert problem(answer, 503) and int(answer.headers["retry-after"]) >= 1


def test_long_requests_do_not_hold_up_a_quick_one() -> None:
    async def scenario(pool: Pool) -> None:
        pool.quick, pool._few.places = 1, asyncio.Semaphore(1)
        await pool.run("configurations", QUICK, 60.0, _stays)
        long = [asyncio.create_task(pool.run("check", SLOW, 60.0, _stays)) for _ in range(5)]
        await asyncio.sleep(0.5)
        await pool.run("configurations", QUICK, 60.0, _stays, quick=True)
        assert sum(one.done() for one in long) <= 3 and pool._many.queue
        for one in long:
            one.cancel()

    _with_pool(1, 1, scenario)


def test_a_long_request_among_the_quick_ones_makes_room_and_is_answered() -> None:
    async def scenario(pool: Pool) -> None:
        pool.quick, pool._few.places = 1, asyncio.Semaphore(1)
        await pool.run("configurations", QUICK, 60.0, _stays)
        other = asyncio.create_task(pool.run("check", SLOW, 60.0, _stays))
        await asyncio.sleep(0.05)
        long = asyncio.create_task(pool.run("check", SLOW, 60.0, _stays, quick=True))
        await asyncio.sleep(0.5)
        await pool.run("configurations", QUICK, 60.0, _stays, quick=True)
        assert not long.done()
        assert (await long).body and (await other).body

    _with_pool(1, 0, scenario)


# --- transformers --------------------------------------------------------------------------------


def test_a_transformer_is_looked_into(tmp_path) -> None:
    pytest.importorskip("transformers")
    from cynosure.pretrained.reading.traces import settling
    from cynosure.web.answers.transformers import transformer_answers
    from test_pretrained import tiny_model, tiny_tokenizer

    tiny_model("bert").save_pretrained(tmp_path / "tiny")
    tiny_tokenizer("bert").save_pretrained(tmp_path / "tiny")
    m = cy.load_transformer(tmp_path / "tiny")
    answers = transformer_answers({"tiny": str(tmp_path / "tiny")})
    asked = {"transformer": None, "text": "the film", "words": False, "layer": 1, "head": 2}
    told: list[float] = []
    found = answers["trace"](asked, lambda done, what: told.append(done))
    assert told == sorted(told) and 0 < told[0] < told[-1] < 1 and len(told) >= 4
    tr = m.trace("the film")
    assert found["words"] == list(tr.words) and found["layers"] == m.depth
    assert np.allclose(found["P"], tr.attentions[1, 2], atol=1e-6)
    assert np.shape(found["view"]) == (m.depth + 1, len(tr.words), 3)
    counts = [len(set(labels)) for labels in found["clusters"]]
    assert counts == [row["clusters"] for row in found["by_layer"]]
    table = answers["heads"]({"transformer": "tiny", "iterate": None})
    first = [h.value for h in m.heads(0)[0].hypotheses()]
    assert table["heads"][0]["distances"] == pytest.approx(first)
    again = {"transformer": "tiny", "iterate": 5, "layer": 0, "head": 1, "text": "the film"}
    run = answers["heads"](again)
    assert run["t"] == list(range(6))
    assert np.shape(run["run"]) == np.shape(run["frozen"]) == np.shape(run["control"])
    still = m.iterate("the film", 0, 5, parts="head", head=1, frozen=True)
    assert run["ends"]["frozen"]["mean_cosine"] == pytest.approx(settling(still)["mean_cosine"])
    assert run["foretold"] <= 5 and run["frozen_error"] > 0
    for wrong in ({"layer": 9}, {"head": 9}, {"transformer": "../elsewhere"}):
        with pytest.raises(ValueError, match=r"layers 0 to|there are tiny"):
            answers["trace"](asked | wrong)


def test_progress_is_told_line_by_line(client) -> None:
    """How far it is, then the answer that is given without; a refusal is the last line."""
    head = {"Accept": "application/x-ndjson"}
    asked = {"tokens": SQUARE, "alpha": 0.5}
    lines = client.post("/api/v1/limit", json=asked, headers=head).text.splitlines()
    plain = client.post("/api/v1/limit", json=asked).json()
    assert json.loads(lines[-1])["answer"] == plain
    refused = client.post("/api/v1/trace", json={"text": "x"}, headers=head).text.splitlines()
    assert json.loads(refused[-1])["problem"]["status"] == 422

    async def ask(gone, tell) -> pools.Answer:
        for share in (0.25, 0.5):
            tell({"done": share, "what": "half"})
        return pools.Answer("application/json", b"[1]")

    async def told(ask) -> list[dict]:
        parts = [bytes(part) async for part in progress(ask)]  # of a long answer, several a line
        return [json.loads(line) for line in b"".join(parts).splitlines()]

    quarter, half, end = asyncio.run(told(ask))
    assert (quarter["done"], half["done"], end) == (0.25, 0.5, {"answer": [1]})


def test_a_stream_that_is_left_is_no_longer_wanted() -> None:
    seen: list[bool] = []

    async def scenario() -> None:
        async def ask(gone, tell) -> pools.Answer:
            tell({"done": 0.1, "what": ""})
            while not await gone():
                await asyncio.sleep(0.001)
            seen.append(True)
            return pools.Answer("", b"")

        stream = progress(ask)
        await anext(stream)
        await stream.aclose()
        while not seen:
            await asyncio.sleep(0.001)

    asyncio.run(asyncio.wait_for(scenario(), 20))


def test_the_card_of_a_model_is_a_page_that_only_shows(client) -> None:
    page = client.get("/api/v1/models/imdb/card.html")
    assert "Model card: imdb" in page.text and "sandbox" in page.headers["content-security-policy"]
    problem(client.get("/api/v1/models/..%2fsecret/card.html"), 404)
    problem(client.get("/api/v1/models/other/card.html"), 422)


# --- experiments ---------------------------------------------------------------------------------


def _until_it_ends(client, id_: str) -> dict:
    for _ in range(3000):
        state = client.get(f"/api/v1/experiments/runs/{id_}").json()
        if state["state"] in ("done", "failed", "cancelled"):
            return state
        time.sleep(0.1)
    raise AssertionError(state)


def test_an_experiment_runs_tells_and_reports(client) -> None:
    listed = client.get("/api/v1/experiments").json()["experiments"]
    assert {one["name"] for one in listed} == {
        name for names in catalogue.chapters().values() for name in names
    }
    started = client.post("/api/v1/experiments/figure1", json={"params": {"n": 12}})
    assert started.status_code == 202
    id_ = started.json()["id"]
    problem(client.get(f"/api/v1/experiments/runs/{id_}/report.html"), 404)
    events = client.get(f"/api/v1/experiments/runs/{id_}/events").text
    told = [json.loads(line[6:]) for line in events.split("\n") if line.startswith("data: ")]
    assert told[-1]["state"] == "done" and told[-1]["failed"] == 0
    page = client.get(told[-1]["report"])
    assert "Figure 1" in page.text and "sandbox" in page.headers["content-security-policy"]
    assert "script-src" not in page.headers["content-security-policy"]


def test_an_experiment_is_cancelled(client) -> None:
    id_ = client.post("/api/v1/experiments/basins", json={"quick": False}).json()["id"]
    time.sleep(0.3)
    assert client.delete(f"/api/v1/experiments/runs/{id_}").json()["state"] == "cancelled"
    assert _until_it_ends(client, id_)["state"] == "cancelled"


def test_experiments_refuse_what_they_do_not_have(client) -> None:
    problem(client.post("/api/v1/experiments/nothing", json={}), 404)
    problem(client.get("/api/v1/experiments/runs/nothing"), 404)
    problem(client.delete("/api/v1/experiments/runs/..%2f..%2fetc"), 404)
    bad = client.post("/api/v1/experiments/figure1", json={"params": {"n": "many"}})
    assert _until_it_ends(client, bad.json()["id"])["state"] == "failed"


def test_old_runs_leave_but_a_named_folder_is_never_emptied(tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(BOUNDS, "runs_kept", 1)
    for kept in (True, False):
        gallery = Gallery(Pool(LANE, 1, 0), tmp_path, kept)
        for i in range(3):
            made = _Run("figure1")
            made.id, made.state["state"] = f"figure1-0000000{i}", "done"
            gallery.runs[made.id] = made
            (tmp_path / made.id).mkdir(exist_ok=True)
        gallery._forget()
        assert list(gallery.runs) == ["figure1-00000002"]
        assert len(list(tmp_path.iterdir())) == (3 if kept else 1)


def test_no_parameter_names_a_file() -> None:
    from cynosure.catalogue import study as experiment

    module = experiment("sentiment_placed")
    with pytest.raises(ValueError, match="data"):
        params_of(module, True, {"data": "secret.tar.gz"})
    assert params_of(module, True, {"reviews": 99}).reviews == 99
    assert params_of(module, True, {"dims": [2, 3]}).dims == (2, 3)
    for wrong in ({"reviews": 1.5}, {"reviews": True}, {"dims": []}, {"dims": 2}, {"seed": 1e300}):
        with pytest.raises(ValueError, match="params"):
            params_of(module, True, wrong)


def test_a_schedule_is_nested_only_so_deep() -> None:
    spec: dict = {"name": "pure_attention"}
    for _ in range(4):
        spec = {"name": "scheduled", "layers": [spec]}
    assert dynamics_of(spec) is not None
    with pytest.raises(ValueError, match="nested"):
        dynamics_of({"name": "scheduled", "layers": [spec]})


# --- the document --------------------------------------------------------------------------------


def test_the_server_does_what_its_document_says(client) -> None:
    """Statuses, media types, bodies and methods; `make fuzz` asks far more often."""
    from fuzz.contract import walk

    seen, complaints = walk(client, 110, seed=1)
    assert not complaints, "\n".join(complaints)
    assert {200, 404, 415, 422} <= set(seen)


def test_the_contract_test_finds_what_is_not_documented() -> None:
    """Each kind of complaint, from answers that are wrong on purpose."""
    from types import SimpleNamespace

    from fuzz.contract import Contract, complaint

    schema = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}
    operation = {"responses": {"200": {"content": {"application/json": {"schema": schema}}}}}

    def answer(status: int, media: str, body: object) -> object:
        head = {"content-type": media}
        return SimpleNamespace(status_code=status, headers=head, text="", json=lambda: body)

    contract = Contract({"paths": {}})
    for status, media, body in (
        (500, "application/json", {"n": 1}),
        (200, "text/html", {"n": 1}),
        (200, "application/json", {}),
        (200, "application/json", {"n": True}),
    ):
        assert complaint(contract, operation, answer(status, media, body))
    assert complaint(contract, operation, answer(200, "application/json", {"n": 1})) is None


def test_a_frame_is_allowed_to_the_origin_that_is_named() -> None:
    for embed, said in (
        (None, "'none'"),
        ("https://course.example.edu", "https://course.example.edu"),
    ):
        with TestClient(application(Settings(workers=1, embed=embed)), base_url=HOME) as client:
            policy = client.get("/").headers["content-security-policy"]
            assert policy.endswith(f"frame-ancestors {said}")
    for bad in ("*", "https://a b", "https://a; script-src *", "course.example.edu"):
        with pytest.raises(ValueError, match="--embed: expected an origin"):
            application(Settings(embed=bad))
    with pytest.raises(ValueError, match="--embed: a page in the frame"):
        serve(Settings(embed="https://a.example", token="x" * 20), "127.0.0.1", 0)


def test_an_export_takes_a_new_folder(tmp_path) -> None:
    from cynosure.web.static_page import export

    first = export(tmp_path / "play")
    assert first.is_file() and "/static/" not in first.read_text("utf-8")
    imports = [
        re.findall(r'from "\./([\w.]+)"', p.read_text("utf-8")) for p in first.parent.glob("*.js")
    ]
    assert all((first.parent / name).is_file() for names in imports for name in names)
    with pytest.raises(ValueError, match="new or an empty folder"):
        export(tmp_path / "play")
