"""For which step sizes does a late leader appear? Golden case G1, in exact fractions."""

from fractions import Fraction

import cynosure as cy

tokens = cy.configurations.golden_exact("G1")


def first_layer(alpha):
    """The layer at which token 1 becomes a leader, or None."""
    limit = cy.limit(cy.PureAttention(alpha=alpha), tokens, exact=True)
    assert limit.certified
    born = int(limit.born[1])
    return born if born >= 0 else None


for alpha in (Fraction(1, 10), Fraction(1, 2), Fraction(1), Fraction(2)):
    print(f"alpha = {alpha}: first layer {first_layer(alpha)}")

# The answer changes between 1/10 and 1/2, and between 1 and 2. Find both places by bisection.
for out, inside in ((Fraction(1, 10), Fraction(1, 2)), (Fraction(2), Fraction(1))):
    for _ in range(12):
        middle = (out + inside) / 2
        if first_layer(middle) is None:
            out = middle
        else:
            inside = middle
    print(f"token 1 starts to lead between alpha = {float(out):.4f} and {float(inside):.4f}")
