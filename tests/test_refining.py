"""Points where a quantity jumps, means over seeds against NumPy, and phase diagrams as data."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose

pytest.importorskip("xarray")
pytest.importorskip("zarr")


import cynosure as cy
import sweep_cells as cells
from cynosure.cli import main
from cynosure.sweeps import refine, summary


def disc(x, y, seed):
    return {"inside": float(x * x + y * y < 0.5), "draw": np.random.default_rng(seed).normal()}


def test_a_budget_goes_where_the_quantity_jumps():
    ds = refine(disc, {"x": (0, 1), "y": (0, 1)}, seeds=2, of="inside", budget=300)
    assert ds.sizes == {"point": ds.sizes["point"], "seed": 2} and 250 < ds.sizes["point"] <= 300
    away = np.abs(np.hypot(ds.x, ds.y) - np.sqrt(0.5)).values
    assert np.median(away) < 0.07, "of a plain grid it is 0.25"
    for x, y, found in zip(ds.x.values, ds.y.values, ds.inside.values):
        assert (found == disc(x, y, 0)["inside"]).all()
    assert_allclose(ds.draw[0], [disc(0, 0, s)["draw"] for s in range(2)])


def test_equal_ratios_and_fixed_values():
    def late(x, c):
        return {"y": float(x > c)}

    ds = refine(late, {"x": (1e-3, 1e3), "c": 0.02}, of="y", budget=40, log=("x",))
    assert ds.x.values[0] == 1e-3 and (np.diff(ds.x) > 0).all()
    jump = ds.x.values[ds.y.values > 0].min() / ds.x.values[ds.y.values == 0].max()
    assert 1 < jump < 1.01, "the jump lies between two neighbours"
    flat = refine(late, {"x": (1, 2), "c": 9.0}, of="y", budget=40)
    assert flat.sizes["x"] == 17, "nothing jumps, nothing more is computed"


@pytest.mark.parametrize(
    ("grid", "how", "said"),
    [
        ({"x": (1, 0)}, {}, "low < high"),
        ({"x": (0, 1)}, {"budget": 5}, "budget: 17 points"),
        ({"x": (0, 1)}, {"log": ("x",)}, "low > 0"),
        ({"x": (0, 1)}, {"of": "z"}, "'z' is none of y"),
    ],
)
def test_what_cannot_be_refined_is_said(grid, how, said):
    with pytest.raises(ValueError, match=said):
        refine(lambda x: {"y": x}, grid, **{"of": "y", **how})
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        refine(lambda x: {"y": 1 / (x - x)}, {"x": (0, 1)}, of="y")


def test_summary_is_the_mean_with_students_interval():
    ds = cy.sweep(cells.plain, {"beta": [0.0, 0.5], "d": [2, 3]}, seeds=5)
    out, x = summary(ds, level=0.9), ds["mean"].values
    assert_allclose(out["mean"], x.mean(axis=-1))
    assert_allclose(out["mean_se"], x.std(axis=-1, ddof=1) / np.sqrt(5))
    assert_allclose(out["mean_high"] - out["mean"], 2.131847 * out["mean_se"], rtol=1e-6)
    ds["status"] = ds["status"].copy()
    ds["status"][0, 0, 3] = 2
    left = summary(ds)
    assert left.cells.values.tolist() == [[4, 5], [5, 5]]
    assert_allclose(left["mean"][0, 0], np.delete(x[0, 0], 3).mean())


def test_a_phase_diagram_shows_the_means_of_cells_that_are_done():
    ds = cy.sweep(cells.plain, {"beta": [0.0, 0.25, 0.5, 1.0], "d": [2, 3, 5]}, seeds=3)
    ax = cy.plot.phase(ds, "beta", "d", of="mean")
    drawn = next(a for a in ax.get_children() if a.get_gid() == "phase")
    assert_allclose(drawn.get_array(), ds["mean"].mean("seed").transpose("d", "beta"))
    assert ax.get_xlabel() == "beta" and len(ax.figure.axes) == 2
    line = cy.plot.phase(ds.sel(d=2), "beta", of="mean").lines[0]
    assert_allclose(line.get_ydata(), ds["mean"].sel(d=2).mean("seed"))
    with pytest.raises(ValueError, match=r"ds.sel\(d="):
        cy.plot.phase(ds, "beta", of="mean")
    with pytest.raises(ValueError, match="of: name one of"):
        cy.plot.phase(ds, "beta", "d")
    few = refine(disc, {"x": (0, 1), "y": (0.1, 10)}, 1, of="inside", budget=100, log=("y",))
    assert cy.plot.phase(few, "x", "y", of="inside").get_yscale() == "log"


def test_a_store_is_opened_by_others_without_a_warning(tmp_path, capfd):
    import xarray

    path = tmp_path / "s.zarr"
    ds = cy.sweep(
        cells.plain, {"beta": [0.0, 0.5], "d": 2}, seeds=2, store=path, units={"mean": "km"}
    )
    cy.sweep(cells.plain, {"beta": [0.0, 0.5], "d": 2}, seeds=2, store=path, units={"mean": "m"})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        other = xarray.open_zarr(path)
    assert (other["mean"] == ds["mean"]).all() and other["mean"].attrs["units"] == "m"
    assert other.attrs["cynosure_version"] == cy.__version__ == ds.attrs["cynosure_version"]
    assert other.attrs["created"][:2] == "20" and "seed=s" in ds.attrs["seed_law"]
    assert all(" " not in name for name in other.attrs)
    assert main(["sweep", "--store", str(path), "--watch"]) == 0
    said = capfd.readouterr()
    assert "4 of 4 cells, 0 failed" in said.err and "4 done" in said.out
    assert cy.sweep(cells.plain, {"beta": [0.0, 1.0], "d": 2}, seeds=3).sizes["seed"] == 3
    with pytest.raises(TypeError, match="a number of seeds such as 16"):
        cy.sweep(cells.plain, {"beta": [0.0, 1.0], "d": 2}, seeds="many")
