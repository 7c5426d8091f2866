"""The exact hardmax sets: who follows whom, on the given floats, and the proofs about it.

`kernels` finds the sets C_i fast, one file per way, with `reference` as the oracle; `followed`
holds them; `walk` carries tokens through the layers with a proved error bound, and `layers` does so
for one configuration or many. `certificates` are the rules that settle a token for ever, `proofs`
the loop that tries them, `exponomials` the signs that one of them needs.
"""
