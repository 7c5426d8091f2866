"""Softmax flows: orders of the steppers, error and time, closed forms, and one large layer.

    python benchmarks/softmax_flows.py [--quick] [--large]

1. Convergence order of every fixed stepper on every flow: errors at T = 1 for steps dt, dt/2, dt/4
   against Adaptive at 1e-12.
2. Error (largest over tokens, median over starts in [-5, 5]^2) and time to T = 5 with dt = 0.1:
   V = I with n = 20, and the hyperplane V of arXiv 2305.05465 with n = 40; interleaved with a
   re-implementation of the integrator published with that paper, timed on one step and scaled (its
   "RK4" freezes attention over the step and shifts all tokens alike, which makes it forward Euler;
   its loops recompute e^{tV} for each pair).
3. Two tokens against the closed form B25; equiangular tokens on the sphere against B31.
4. A softmax layer with n = 16,384, d = 64: seconds and peak memory, each rival in its own process,
   against plain torch. --large adds n = 100,000.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

from interleave import interleave, write  # sets the number of threads: first

import numpy as np  # isort: skip
import cynosure as cy  # isort: skip
from cynosure.attention import Softmax  # isort: skip
from cynosure.dynamics import (  # isort: skip
    AttentionFlow,
    EuclideanFlow,
    LeadingFlow,
    PreNormFlow,
    PureAttention,
    RescaledFlow,
    SphereFlow,
    UnnormalizedFlow,
    UnnormalizedSphereFlow,
)

from cynosure.simulation.steppers import RK4, Adaptive, Euler  # isort: skip
from cynosure.theorems.rescaled import pair_limit  # isort: skip

HYPERPLANE = np.array([[0.647, 0.819], [0.612, 0.633]])
FLOWS = {
    "AttentionFlow": AttentionFlow(Softmax(2.0)),
    "UnnormalizedFlow": UnnormalizedFlow(Softmax(0.5)),
    "EuclideanFlow": EuclideanFlow(V=HYPERPLANE),
    "RescaledFlow, V = I": RescaledFlow(),
    "RescaledFlow, V": RescaledFlow(V=HYPERPLANE),
    "LeadingFlow": LeadingFlow(V=HYPERPLANE),
    "SphereFlow": SphereFlow(Softmax(4.0)),
    "PreNormFlow": PreNormFlow(Softmax(4.0)),
    "UnnormalizedSphereFlow": UnnormalizedSphereFlow(beta=1.0),
}
# Limits of docs/mathematics.md B25, computed there by other means than pair_limit.
PAIRS = {1.0: 0.9483019578715, 0.5: 0.1873767679086, 0.3: 5.21195036056e-3, 0.2: 4.98251158e-6}


def end(flow, z0, stepper, time):
    return cy.simulate(flow, z0, times=[0.0, time], stepper=stepper).values[-1]


def orders(dt):
    """Slope of log error against log dt, by least squares over three steps."""
    z0 = 0.7 * np.random.default_rng(0).standard_normal((10, 2))
    rows = []
    for name, flow in FLOWS.items():
        exact = end(flow, z0, Adaptive(1e-12, 1e-14), 1.0)
        for kind in (Euler, RK4):
            steps = [dt, dt / 2, dt / 4]
            errors = [np.abs(end(flow, z0, kind(h), 1.0) - exact).max() for h in steps]
            order = float(np.polyfit(np.log(steps), np.log(errors), 1)[0])
            row = {"flow": name, "stepper": kind.__name__, "order": round(order, 3)}
            rows.append({**row, "errors": [float(f"{e:.3g}") for e in errors]})
            print(f"{name:<24}{kind.__name__:<18} order {order:.2f}   errors {errors[0]:.1e} "
                  f"{errors[1]:.1e} {errors[2]:.1e}", flush=True)  # fmt: skip
    return rows


def published_step(z, t, dt, V):
    """One step as published: loops over pairs, P frozen, one token's increment added to all."""
    from scipy.linalg import expm

    n = len(z)

    def weight(i, j):
        seen = [np.exp((expm(t * V) @ z[i]) @ (expm(t * V) @ z[k])) for k in range(n)]
        return np.exp((expm(t * V) @ z[i]) @ (expm(t * V) @ z[j])) / np.sum(seen)

    P = np.array([[weight(i, j) for j in range(n)] for i in range(n)])
    new = z.copy()
    for i in range(n):

        def slope(x, i=i):
            return sum(P[i, j] * (V @ (x[j] - x[i])) for j in range(n))

        k1 = slope(z)
        k2 = slope(z + dt / 2 * k1)
        k3 = slope(z + dt / 2 * k2)
        k4 = slope(z + dt * k3)
        new[i] = z[i] + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return new


def settings(quick):
    """Error against the reference and time, in turns, for the two settings."""
    rows = []
    cases = {"V = I, n = 20": (20, None), "hyperplane V, n = 40": (40, HYPERPLANE)}
    for name, (n, V) in cases.items():
        n = n // 2 if quick else n
        starts = [np.random.default_rng(s).uniform(-5, 5, (n, 2)) for s in range(7)]
        z0, flow, matrix = starts[0], RescaledFlow(V=V), np.eye(2) if V is None else V
        ours = {
            "RK4(0.1)": RK4(0.1),
            "Adaptive(1e-6)": Adaptive(1e-6, 1e-9),
            "Adaptive(1e-9)": Adaptive(1e-9, 1e-12),
        }
        exact = [end(flow, z, Adaptive(1e-12, 1e-14), 5.0) for z in starts]
        errors = {  # one start means little: a token near a separatrix may go either way
            k: float(np.median([np.abs(end(flow, z, s, 5.0) - x).max()
                                for z, x in zip(starts, exact, strict=True)]))
            for k, s in {"published": Euler(0.1), **ours}.items()
        }  # fmt: skip
        same = np.abs(published_step(z0, 0.3, 0.1, matrix) - (z0 + 0.1 * flow.velocity(z0, 0.3)))
        rivals = {k: partial(end, flow, z0, s, 5.0) for k, s in ours.items()}
        rivals["published"] = partial(published_step, z0, 0.3, 0.1, matrix)
        seconds = interleave(rivals, rounds=3)
        seconds["published"] *= 50
        row = {"setting": name, "n": n, "published - Euler": float(f"{same.max():.2g}")}
        row["error"] = {k: float(f"{e:.3g}") for k, e in errors.items()}
        row["seconds"] = {k: float(f"{s:.3g}") for k, s in seconds.items()}
        row["published / RK4"] = round(seconds["published"] / seconds["RK4(0.1)"], 1)
        rows.append(row)
        print(json.dumps(row), flush=True)
    return rows


def closed_forms():
    """B25 for four distances, B31 for n = 8 on the sphere."""
    rows = []
    for e, limit in PAIRS.items():
        z0 = np.array([[e], [-e]])  # on the line: beside a common component y drowns in rounding
        got = float(end(RescaledFlow(), z0, Adaptive(1e-13, 1e-18), 60.0)[0, 0])
        printed, quadrature = abs(got / limit - 1), abs(got / pair_limit(e) - 1)
        row = {"e": e, "printed limit": limit, "off printed": float(f"{printed:.2g}")}
        rows.append({**row, "off quadrature": float(f"{quadrature:.2g}")})
        print(f"B25 e = {e}: {got:.13g}, relative error {printed:.1e} against the printed digits, "
              f"{quadrature:.1e} against quadrature", flush=True)  # fmt: skip
    n, beta, r0, T = 8, 3.0, 0.1, 2.0
    gram = np.full((n, n), r0) + (1 - r0) * np.eye(n)
    x = end(SphereFlow(Softmax(beta)), np.linalg.cholesky(gram), Adaptive(1e-12, 1e-14), T)
    from scipy.integrate import solve_ivp

    def rate(_, r):
        e = np.exp(beta * r)
        return 2 * e * (1 - r) * ((n - 1) * r + 1) / (np.exp(beta) + (n - 1) * e)

    r = solve_ivp(rate, (0, T), [r0], method="DOP853", rtol=1e-13, atol=1e-15).y[0, -1]
    seen = (x @ x.T)[np.triu_indices(n, 1)]
    error = float(np.abs(seen - r).max())
    rows.append({"equiangular n": n, "beta": beta, "r(T)": float(r), "error": error})
    print(f"B31 n = {n}, beta = {beta}: r({T:g}) = {r:.12f}, error {error:.1e}", flush=True)
    return rows


def resident():
    """MiB of this process in memory now (Linux). The peak so far may be that of an import."""
    import resource

    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def layer(kind, n, d, dtype):
    """One layer in this process: seconds, and the peak memory above what it began with, in MiB."""
    import resource

    z = np.random.default_rng(0).standard_normal((n, d)).astype(dtype) / d**0.25
    dynamics = PureAttention(Softmax(1.0))
    if kind != "ours, NumPy":
        import torch

        torch.set_num_threads(1)
        z = torch.from_numpy(z)
    run = {
        "ours, NumPy": lambda: dynamics.step(z, 0),
        "ours, torch": lambda: dynamics.step(z, 0),
        "plain torch": lambda: z + 0.5 * (torch.softmax(z @ z.T, dim=-1) @ z - z),
    }[kind]
    dynamics.step(z[:64], 0)  # imports, first calls
    before = resident()
    began = time.perf_counter()
    out = run()
    seconds = time.perf_counter() - began
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - before
    checksum = float((out[:100] ** 2).sum())
    print(json.dumps({"seconds": seconds, "MiB": grown, "checksum": checksum}))


def layers(cases):
    rows = []
    for n, d, dtype, kinds in cases:
        found: dict = {kind: [] for kind in kinds}
        for _ in range(3 if n < 50_000 else 1):
            for kind in kinds:
                call = [sys.executable, __file__, "--layer", kind, str(n), str(d), dtype]
                done = subprocess.run(call, capture_output=True, text=True)
                if done.returncode:  # out of memory, for instance
                    found[kind].append(None)
                    continue
                found[kind].append(json.loads(done.stdout))
        row: dict = {"n": n, "d": d, "dtype": dtype}
        for kind, runs in found.items():
            good = [r for r in runs if r is not None]
            row[kind] = "failed" if not good else {
                "seconds": round(float(np.median([r["seconds"] for r in good])), 3),
                "MiB": round(max(r["MiB"] for r in good)),
                "checksum": float(f"{good[0]['checksum']:.6g}"),
            }  # fmt: skip
        rows.append(row)
        print(json.dumps(row), flush=True)
    return rows


def main() -> None:
    if "--layer" in sys.argv:
        kind, n, d, dtype = sys.argv[sys.argv.index("--layer") + 1 :]
        return layer(kind, int(n), int(d), dtype)
    quick = "--quick" in sys.argv
    rows = [{"part": "orders", "rows": orders(0.1 if quick else 0.05)}]
    rows.append({"part": "error and time, T = 5", "rows": settings(quick)})
    rows.append({"part": "closed forms", "rows": closed_forms()})
    every = ("ours, NumPy", "ours, torch", "plain torch")
    n = 2048 if quick else 16_384
    cases = [(n, 64, "float32", every), (n, 64, "float64", every)]
    if "--large" in sys.argv:
        cases.append((100_000, 64, "float32", ("ours, torch",)))
    rows.append({"part": "one softmax layer", "rows": layers(cases)})
    if not quick:
        write(__file__, rows)


if __name__ == "__main__":
    main()
