"""Leaders and proved limits of tokens in a CSV file, and a report: python who_leads.py [FILE]."""

import sys

import numpy as np

import cynosure as cy

if len(sys.argv) > 1:
    tokens = cy.configurations.read(sys.argv[1])  # one token per row
else:
    tokens = cy.configurations.gaussian(40, 2, seed=2)

attention = cy.PureAttention(alpha=0.5)
run = cy.simulate(attention, tokens, layers=12)
limit = cy.limit(attention, tokens)

print(f"{len(tokens)} tokens, {len(limit.leaders)} leaders: {limit.leaders.tolist()}")
for i in range(min(5, len(tokens))):
    print(f"token {i}: {limit.in_words(i)}, limit {np.round(limit.points[i], 3)}")
if not limit.certified:
    print("undecided:", limit.undecided.tolist())

violated = [check for check in cy.check(run) if check.applies and not check.holds]
print("violated theorems:", [check.theorem for check in violated])

cy.report(run, limit).save("who_leads.html")
cy.plot.layers(run, show=(0, 1, 2, 12)).savefig("who_leads.png", dpi=150)
print("written: who_leads.html, who_leads.png")
