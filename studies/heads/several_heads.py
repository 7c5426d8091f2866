"""Several heads: who leads, where tokens end, and which eigenvalues of the values decide it.

Three questions about attention with H heads, open for the theory of arXiv 2407.01602 (hardmax
layers) and asked by Sugolov and Aubry about the flow of arXiv 2305.05465.

hardmax: z_i <- rho z_i + eta (1/H) sum_h V_h m_i^(h), m_i^(h) the mean of C_i under A_h. With V_h =
I the hull still shrinks, and a token that leads in every head never moves; tokens that no head
agrees on settle at points that are nobody's place.

softmax: x_i' = (1/H) sum_h V_h (P_h x)_i, y = e^{-lt} x with l the leading growth of the mean of
the V_h. With V_h = I the hull shrinks and limits are reached at rate 1 - |l2| (l2 the largest
eigenvalue below 1 of the final (1/H) sum_h P_h), but heads may keep pulling a token to different
vertices, and it ends between them. With own V_h the rate is the spectral gap of their mean. Trap:
rounding makes a limit in the middle of an edge a vertex of the exact hull; a vertex here is farther
from the hull of the other limits than their tolerance.

line: Gaussian A_h and V_h, tokens from the sphere. Tokens of a growing run lie along one direction
v, on one side of 0 or on both. A head with <A_h v, v> < 0 looks at the other side, where tokens are
-x: v is the leading eigenvector of the *signed* mean (1/H) sum_h s_h V_h, s_h = sign <A_h v, v>.
Many runs settle on no line within the time. The null model is the unsigned mean.
"""

from __future__ import annotations

from dataclasses import dataclass

from cynosure import study as st

from ._hardmax_heads import hardmax
from ._signed_line import Draw, line
from ._softmax_heads import Case, plain, softmax

TITLE = "Several heads: leaders, limits and rates, and the signed spectrum"
ALIASES = "multi_head=hardmax head_count=softmax head_directions=line"
STARTS = ("box", "sphere", "gaussian", "ball")


@dataclass(frozen=True)
class Params:
    """V_h = I + `spread` times a Gaussian, symmetric for softmax.

    hardmax: numbers of `heads`, Gaussian `starts` of n tokens in R^d, `layers`, `beta` of the
    softmax heads; leaders of layer 0 are counted for `dims` and forms of the condition numbers
    `conditions` on `counted` starts.
    softmax: `draws` of `soft_heads` heads, A_h with the eigenvalue 1 along a random direction and
    `flatness` across it, each with `soft_starts` starts of `soft_n` tokens in R^d, by name
    (`cy.configurations`), times `size`, until `time`; `varied`: (n, size, flatness, d, start).
    line: `sizes` are (n, draws, dt), for `line_time` sqrt(H) in steps of dt sqrt(H), in `line_d`
    and, the second size only, in `beyond`; `forms`: (H, n, draws, dt, start, form), form "any" or
    "definite" (A_h = B B^T). The longest step is also taken with the second size.
    """

    questions: tuple[str, ...] = ("hardmax", "softmax", "line")
    heads: tuple[int, ...] = (1, 2, 3, 4, 6, 8)
    n: int = 24
    d: int = 2
    alpha: float = 1.0
    starts: int = 20
    layers: int = 60
    beta: float = 20.0
    spread: float = 0.3
    dims: tuple[int, ...] = (2, 4, 16)
    conditions: tuple[float, ...] = (1.4, 5.0, 25.0)
    counted: int = 100
    soft_heads: tuple[int, ...] = (1, 2, 4, 8, 16)
    soft_n: int = 24
    start: str = "box"
    size: float = 6.0
    flatness: float = 0.2
    draws: int = 8
    soft_starts: int = 4
    time: float = 24.0
    dt: float = 0.1
    varied: tuple[Case, ...] = (
        (12, 6.0, 0.2, 2, "box"), (24, 3.0, 0.2, 2, "box"), (24, 6.0, 0.6, 2, "box"),
        (24, 6.0, 0.2, 2, "sphere"), (24, 6.0, 0.2, 2, "gaussian"), (24, 6.0, 0.2, 3, "box"),
        (24, 6.0, 0.2, 3, "sphere"),
    )  # fmt: skip
    line_d: tuple[int, ...] = (2, 3)
    line_heads: tuple[int, ...] = (1, 2, 4, 8, 16)
    sizes: tuple[tuple[int, int, float], ...] = (
        (10, 16, 0.1), (30, 16, 0.1), (100, 8, 0.1), (1000, 2, 0.25)
    )  # fmt: skip
    line_time: float = 16.0
    forms: tuple[Draw, ...] = (
        (4, 30, 16, 0.1, "gaussian", "any"),
        (4, 30, 16, 0.1, "sphere", "definite"),
    )
    beyond: tuple[int, ...] = (8,)
    seed: int = 0


QUICK = Params(
    heads=(1, 2, 4), n=16, starts=3, layers=40, dims=(2, 8), counted=20, conditions=(1.4, 25.0),
    soft_heads=(1, 2), soft_n=8, draws=2, soft_starts=2, time=12.0,
    varied=((8, 6.0, 0.2, 3, "sphere"),), line_heads=(1, 4), sizes=((8, 2, 0.1), (12, 2, 0.2)),
    forms=((2, 8, 2, 0.1, "sphere", "definite"),),
)  # fmt: skip


def run(p: Params, progress: st.Progress | None = None) -> st.Report:
    """A chapter for each question."""
    least = min(min(n, draws + 1) for n, draws, _ in p.sizes)
    counts = (*p.heads, *p.soft_heads, *p.line_heads, p.n, p.starts, p.draws, p.soft_starts)
    sensible = min(counts) >= 1 and p.layers >= 2 and p.soft_n >= 2 and p.time >= 12
    sensible &= min(*p.line_d, least) >= 2 and p.line_time >= 8
    sensible &= all(d >= 2 and start in STARTS for *_, d, start in (plain(p), *p.varied))
    expected = "heads, n, starts, draws >= 1, layers, soft_n, d >= 2, time >= 12, line_time >= 8"
    st.require(sensible, f"{expected}, start in {STARTS}", p)
    asked = {"hardmax": hardmax, "softmax": softmax, "line": line}
    return st.by_question(p, "What several heads change.", asked, progress)
