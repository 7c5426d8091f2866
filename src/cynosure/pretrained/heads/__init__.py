"""Heads: the A and V of attention heads, their spectra, and what of the theory holds for them."""
