"""The exact hardmax sets: who follows whom, on the given floats, and the proofs about it.

`kernels` finds the sets C_i fast, one file per way, with `reference` as the oracle; `followed`
holds them; `walk` carries tokens through the layers with a proved error bound; `certificates` are
the rules that settle a token for ever.
"""
