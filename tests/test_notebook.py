"""The widget of a notebook, its messages driven by hand; a browser drives it in test_browser.py."""

from __future__ import annotations

import re
import sys

import numpy as np
import pytest

import cynosure as cy
from cynosure.web import notebook

SQUARE = [[1.0, 1.0], [1.0, -1.0], [-1.0, -1.0], [-1.0, 1.0], [0.5, 0.1]]

pytest.importorskip("anywidget", reason="pip install 'cynosure[notebook]'")


@pytest.fixture
def held() -> tuple:
    """A widget, and what it sent."""
    w, sent = cy.widget(SQUARE), []
    w.send = sent.append
    return w, sent


def test_a_message_is_answered_by_the_limit(held) -> None:
    w, sent = held
    moved = [*SQUARE[:4], [3.0, 0.2]]
    w._handle_custom_msg({"z": moved, "alpha": 0.5}, [])
    li = cy.limit(cy.PureAttention(alpha=0.5), moved)
    found = sent.pop()["found"]
    assert found["points"] == li.points.tolist() and found["certified"] is True
    assert found["leaders"] == li.leaders.tolist() == [2, 3, 4]
    assert w.z == SQUARE, "tokens are kept when they are let go, not while they are dragged"


def test_the_form_is_the_kernels(held) -> None:
    w, sent = held
    w.A = [[1.0, -0.9], [-0.9, 1.0]]
    of = cy.limit(cy.PureAttention(cy.Hardmax(w.A), 0.5), SQUARE)
    plain = cy.limit(cy.PureAttention(alpha=0.5), SQUARE)
    assert sent.pop()["found"]["points"] == of.points.tolist() == w.limit.points.tolist()
    assert not np.array_equal(of.points, plain.points), "a case in which A matters"


def test_what_cannot_be_answered_is_said(held) -> None:
    w, sent = held
    for wrong in ([[1.0, "x"]], [[1.0], [1.0, 2.0]], []):
        w._handle_custom_msg({"z": wrong, "alpha": 0.5}, [])
        assert set(sent.pop()) == {"problem"}
    w._handle_custom_msg({"z": SQUARE, "alpha": -1.0}, [])
    assert "alpha" in sent.pop()["problem"]


@pytest.mark.parametrize(
    ("z0", "more", "word"),
    [
        ([[1.0, 2.0, 3.0, 4.0]], {}, "plane"),
        (np.zeros((0, 2)), {}, "token"),
        (np.zeros((6000, 2)), {}, "5000"),
        (SQUARE, {"alpha": 0.0}, "alpha"),
        (SQUARE, {"A": [[1.0]]}, "A"),
    ],
)
def test_what_cannot_be_shown_is_refused(z0, more, word) -> None:
    with pytest.raises(ValueError, match=word):
        cy.widget(z0, **more)


def test_play_is_answered_by_the_layers(held) -> None:
    w, sent = held
    w._handle_custom_msg({"walk": True, "z": SQUARE, "alpha": 0.5}, [])
    run, walk = cy.simulate(cy.PureAttention(alpha=0.5), SQUARE, layers=30), sent.pop()["walk"]
    assert walk["states"] == run.z.tolist() and walk["t"] == list(range(31))
    assert walk["born"] == cy.roles(run).born.tolist() and repr(w) == "widget(5 tokens, alpha=0.5)"
    w._handle_custom_msg({"walk": True, "z": SQUARE, "alpha": -1.0}, [])
    assert "alpha" in sent.pop()["problem"]


def test_a_run_and_a_sentence_walk() -> None:
    z = cy.configurations.gaussian(6, 8, seed=1)
    run = cy.simulate(cy.PureAttention(cy.Softmax(3.0)), z, layers=400, words=list("abcdef"))
    w = cy.widget(run)
    assert len(w.walk["states"]) == 200 and w.walk["t"][-1] == 400
    assert np.shape(w.walk["states"])[1:] == (6, 2) and w.walk["words"] == list("abcdef")
    assert "a run of 200 states" in repr(w) and "PC 1 of" in w.walk["about"]
    trace = cy.pretrained.Trace(run, np.ones((1, 1, 6, 6)) / 6, z[None])
    assert cy.widget(trace).walk["states"] == w.walk["states"]
    solid = cy.widget(cy.configurations.gaussian(4, 3))
    assert len(solid.z[0]) == 3 and solid.limit.certified
    with pytest.raises(ValueError, match="at most 400 tokens"):
        cy.widget(cy.simulate(cy.PureAttention(), np.ones((401, 2)), layers=0))


def test_one_module_holds_all(held) -> None:
    code = held[0]._esm
    assert "import " not in re.sub(r"//.*", "", code) and code.count("export ") == 1
    named = re.findall(r"^(?:const|function|class) ([\w$]+)", code, re.MULTILINE)
    assert len(named) == len(set(named)) and "Scene" in named


def test_without_anywidget_it_says_what_to_install(monkeypatch) -> None:
    notebook._kind.cache_clear()
    monkeypatch.setitem(sys.modules, "anywidget", None)
    with pytest.raises(ImportError, match=r"cynosure\[notebook\]"):
        cy.widget(SQUARE)
