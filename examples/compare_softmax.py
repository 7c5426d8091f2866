"""How many layers do softmax and hardmax agree? Writes compare_softmax.csv and .png."""

import csv

import numpy as np
from matplotlib.figure import Figure

import cynosure as cy

tokens = cy.configurations.gaussian(30, 2, seed=1)
hard = cy.simulate(cy.PureAttention(alpha=0.5), tokens, layers=40)
rows = []
for beta in np.geomspace(1, 1000, 13):
    soft = cy.simulate(cy.PureAttention(cy.Softmax(beta=beta), alpha=0.5), tokens, layers=40)
    distance = np.linalg.norm(soft.z - hard.z, axis=-1).max(axis=-1)  # the worst token, by layer
    apart = np.flatnonzero(distance > 0.5)
    rows.append((beta, int(apart[0]) if len(apart) else None))

with open("compare_softmax.csv", "w", newline="") as file:
    csv.writer(file).writerows([("beta", "first layer further apart than 0.5"), *rows])

figure = Figure(figsize=(5, 3.4), layout="constrained")
axes = figure.add_subplot(xlabel="β", ylabel="layers within 0.5 of hardmax", xscale="log")
axes.plot([beta for beta, _ in rows], [41 if layer is None else layer for _, layer in rows], "o-")
figure.savefig("compare_softmax.png", dpi=150)
for beta, layer in rows:
    print(f"beta {beta:7.1f}: {'never within 40 layers' if layer is None else f'layer {layer}'}")
