"""Bars: shown where somebody looks and a call lasts, silent elsewhere; records in a notebook."""

from __future__ import annotations

import io
import sys
import time

import numpy as np
import tqdm  # noqa: F401 - takes longer than the calls here

import cynosure as cy
from cynosure import _progress
from cynosure.drawing.movie import Film


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def slowly(count: int, until=lambda: True):
    """Layers that take 20 ms each; the last waits for this, a minute at most."""

    class Slow(cy.dynamics.LayerMap):
        def step(self, z, k, *, mask=None):
            time.sleep(0.02)
            for _ in range(3000 if k == count - 1 else 0):
                if until():
                    break
                time.sleep(0.02)
            return 0.9 * z

    return {"dynamics": Slow(), "z0": np.ones((2, 2)), "layers": count}


def opened(monkeypatch) -> Terminal:
    """A terminal in place of standard error; not a fixture, after which pytest takes it back."""
    monkeypatch.setattr(_progress, "AFTER", 0.05)
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    return screen


def test_a_call_that_lasts_shows_a_bar_on_a_terminal(monkeypatch):
    terminal = opened(monkeypatch)
    cy.simulate(**slowly(12, lambda: "running Slow" in terminal.getvalue()))
    assert "running Slow" in terminal.getvalue() and "layers" in terminal.getvalue()
    monkeypatch.setattr(_progress, "AFTER", 60.0)
    told = terminal.getvalue()
    cy.simulate(**slowly(2), progress=None)
    assert terminal.getvalue() == told, "it did not last"


def test_scripts_that_ask_are_silent(monkeypatch):
    terminal = opened(monkeypatch)
    cy.simulate(**slowly(8), progress=False)
    with _progress.silent():
        cy.simulate(**slowly(8))
    seen = []
    cy.simulate(**slowly(8), progress=seen.append)
    assert seen == list(range(1, 9)), "the caller's own function replaces the bar"
    monkeypatch.setattr(terminal, "isatty", lambda: False)
    cy.simulate(**slowly(8))
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setenv("TQDM_DISABLE", "1")
    cy.simulate(**slowly(8))
    assert terminal.getvalue() == ""
    monkeypatch.delenv("TQDM_DISABLE")
    cy.simulate(**slowly(8), progress=True)
    assert "running Slow" in terminal.getvalue()


def test_a_bar_has_no_bars_inside(monkeypatch):
    terminal = opened(monkeypatch)
    with _progress.showing(None, "outside", 2, " steps") as tell:
        cy.simulate(**slowly(8, lambda: "outside" in terminal.getvalue()))
        tell(1)
    assert "outside" in terminal.getvalue() and "Slow" not in terminal.getvalue()


def test_a_movie_is_a_path_that_shows_itself(tmp_path):
    run = cy.simulate(cy.PureAttention(), cy.configurations.gaussian(5, 2), layers=2)
    film = cy.movie.movie(run, tmp_path / "a.gif", size=64)
    assert film == tmp_path / "a.gif" and film.read_bytes()[:3] == b"GIF"
    assert film._repr_html_().startswith('<img alt="a.gif" src="data:image/gif;base64,R0lG')
    assert film.parent._repr_html_() is None and Film(tmp_path / "b.gif")._repr_html_() is None


def test_records_are_short_in_print_and_tables_in_a_notebook():
    z = cy.configurations.gaussian(300, 6, seed=1)
    run = cy.simulate(cy.PureAttention(), z, layers=3)
    flow = cy.simulate(cy.dynamics.RescaledFlow(), z[:40], time=2.0)
    records = [run, cy.limit(cy.PureAttention(), z), cy.roles(run), cy.clusters(run), cy.hull(z)]
    records += [cy.recognise(flow), run.status, cy.check(run), cy.check(run)[0], cy.control(z, 3)]
    records += [cy.spectra.spectrum(np.eye(6)), cy.PureAttention(cy.Softmax(1.0, np.eye(6)))]
    for record in records:
        assert len(repr(record)) < 250, record
        assert record._repr_html_().startswith("<table>") and len(record._repr_html_()) < 5000


def test_what_a_hypothesis_says_stands_beside_it():
    from cynosure.theorems.checks import Hypotheses, Hypothesis

    found = Hypotheses([Hypothesis("A symmetric", False, 0.65)], "0 holds, 1 is far")
    assert "A symmetric: NO, 0.65" in repr(found) and "0 holds, 1 is far" in repr(found)
    assert "0 holds, 1 is far" in found._repr_html_() and found[0].value == 0.65
