"""How many random tokens lead? A sweep into a store; run it again after an interruption."""

from matplotlib.figure import Figure

import cynosure as cy
from cynosure.sweeps.cells import leaders
from cynosure.theorems import expected_leaders

if __name__ == "__main__":  # worker processes import this file
    ds = cy.sweep(
        leaders,
        grid={"d": [1, 2, 3, 4, 6, 8, 12], "n": [16, 64]},
        seeds=range(16),
        store="leaders.zarr",
    )
    figure = Figure(figsize=(5, 3.4), layout="constrained")
    axes = figure.add_subplot(xlabel="dimension d", ylabel="leaders at layer 0")
    d = ds["d"].values
    for n in ds["n"].values.tolist():
        counts = ds["first"].sel(n=n)
        error = counts.std("seed", ddof=1) / len(ds["seed"]) ** 0.5
        axes.errorbar(d, counts.mean("seed"), error, fmt="o", label=f"n = {n}")
        axes.plot(d, [expected_leaders(n, k) for k in d.tolist()], "k-", lw=1)
        print(f"n = {n}:", counts.mean("seed").values.round(1).tolist())
    axes.legend(title="lines: exact expectation")
    figure.savefig("leaders.png", dpi=150)
