"""The exact hardmax sets: who follows whom, on the given floats, and the proofs about it.

`kernels` finds the sets C_i fast, one file per way; `followed` holds them; `walk` carries one
configuration through the layers, as floats with a proved error bound (`scaled`) and as integers
where these do not decide; `layers` does so for one configuration or many. `certificates` are the
rules that settle a token, `proofs` the loop that tries them.
"""
