"""Head: one attention head of a real transformer, as the A and V of the theory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, final

import numpy as np
import scipy

from ..._display import Shown
from ..._shapes import Complex, Float
from ..._types import Array, as_tokens
from ...attention import Attention, Causal, Heads, Softmax, Turn
from ...dynamics import EuclideanFlow, Flow, LeadingFlow, UnnormalizedFlow
from ...theorems.checks import Hypotheses, Hypothesis
from .norms import QueryKeyNorm

EXACT = 1e-10  # singular values below this share of the largest are zero
CLOSE = 1e-6  # a hypothesis at this relative distance holds: weights are stored in float32

# What a theorem asks of a head, and the theorem. Distances are relative: 0 holds, 1 is far.
HYPOTHESES = {
    "A symmetric": "arXiv 2407.01602 Theorem 1.1 (B3, B5), 2305.05465 (B24)",
    "A + Aᵀ positive definite": "no collision, arXiv 2407.01602 (B6)",
    "A symmetric positive definite": "arXiv 2407.01602 Theorem 1.1 (B3, B5), 2305.05465 (B24)",
    "A = βI": "sphere flows, arXiv 2312.10794 (B30, B31)",
    "V = cI, c > 0": "polytope, arXiv 2305.05465 (B24); any A if causal, 2411.04990 (B34)",
    "V = cI, c < 0": "collapse to 0, arXiv 2305.05465 (B28)",
    "V leads with a real positive simple eigenvalue": "good triple, arXiv 2305.05465 (B26)",
    "⟨Qf, Kf⟩ > 0": "good triple, arXiv 2305.05465 (B26)",
    "good triple": "at most three hyperplanes, arXiv 2305.05465 (B26)",
    "good triple with multiplicity": "arXiv 2305.05465 (B27)",
}


@final
@dataclass(frozen=True, eq=False)
class Leading(Shown):
    """The largest real positive eigenvalue of V: V f = value f, Vᵀ dual = value dual.

    |f| = 1 and <dual, f> = 1: the coordinate <dual, z_i> is f1*(z_i) of arXiv 2305.05465. `gap` is
    1 - |next| / value over all other eigenvalues, negative when another one is larger; `form` is
    <Qf, Kf>. A good triple has gap > 0 and form > 0.
    """

    value: float
    f: Float[np.ndarray, "d"]
    dual: Float[np.ndarray, "d"]
    gap: float
    form: float
    cosine: float  # form / (|Qf| |Kf|)

    def __repr__(self) -> str:
        return (
            f"Leading(value={self.value:.4g}, gap={self.gap:.3g}, form={self.form:.4g}, "
            f"cosine={self.cosine:.3g}, d={len(self.f)})"
        )


@final
@dataclass(frozen=True, eq=False)
class Head(Shown):
    """One head: q_i = Q x_i + b_Q, k_j = K x_j + b_K, v_j = W_V x_j + b_V, and

        P_ij = softmax_j <q_i, k_j>,   the head adds  W_O sum_j P_ij v_j  to token i

    The factor 1/√d_k is inside Q and b_Q. Then A = KᵀQ (score <A x_i, x_j>) and V = W_O W_V, both
    d x d of rank at most d_k. b_K drops out of the softmax; b_Q adds <Kᵀb_Q, x_j> to the score of
    every target x_j, and b_V adds the constant W_O b_V. `lifted()` makes all three part of A and V.

    Where the model has them: `rotary` positions turn q_i and k_j, and the head has one form for
    each offset, score <form(j - i) x_i, x_j>, A being that of offset 0; `slope` (j - i) is added
    (ALiBi); `norm` divides queries and keys by their size; scores are bent to `cap` tanh(s / cap);
    a token looks at those less than `window` places away, and only back if `causal`; with a `sink`
    the softmax has one more score, whose weight goes to nobody.

    Trap: x are the tokens the attention sees (`Trace.seen`), which with the norm first (GPT-2,
    Llama) are norm(x), not the tokens of the trajectory. The bias of the output projection belongs
    to the layer, see `Transformer.output_bias`.
    """

    Q: Float[np.ndarray, "k d"]
    K: Float[np.ndarray, "k d"]
    W_V: Float[np.ndarray, "m d"]
    W_O: Float[np.ndarray, "d m"]
    b_Q: Float[np.ndarray, "k"]
    b_K: Float[np.ndarray, "k"]
    b_V: Float[np.ndarray, "m"]
    layer: int = 0
    index: int = 0
    causal: bool = False
    rotary: Turn | None = None
    norm: QueryKeyNorm | None = None
    slope: float = 0.0
    cap: float | None = None
    window: int | None = None
    sink: float | None = None

    def __repr__(self) -> str:
        return f"Head({self.name}, d={self.Q.shape[1]}, d_k={self.Q.shape[0]})"

    def _table(self) -> list[tuple[str, object]]:
        (d_k, d), lead = self.Q.shape, self.leading
        mask = "causal" if self.causal else "no mask"
        extra = ("rotary", "norm", "cap", "window", "sink")
        has = [name for name in extra if getattr(self, name) is not None]
        has += ["slope"] if self.slope else []
        value = "none real and positive" if lead is None else f"{lead.value:.4g}"
        far = [(f"distance to: {h.name}", h.value) for h in self.hypotheses()]
        return [
            ("head", f"{self.name}, d = {d}, d_k = {d_k}, {mask}"),
            ("also", ", ".join(has) or "nothing: softmax of <q, k>"),
            ("leading eigenvalue of V", value),
            *((name, f"{x:.3g} (0 holds, 1 far)") for name, x in far),
        ]

    @property
    def name(self) -> str:
        return f"L{self.layer}H{self.index}"

    @property
    def A(self) -> Float[np.ndarray, "d d"]:
        return self.K.T @ self.Q

    @property
    def V(self) -> Float[np.ndarray, "d d"]:
        return self.W_O @ self.W_V

    def form(self, offset: int) -> Float[np.ndarray, "d d"]:
        """The matrix of the scores <form x_i, x_j> of tokens with j - i = offset."""
        return self.at(offset).A

    def at(self, offset: int) -> Head:
        """The head as tokens j - i = offset apart see each other: its A is `form(offset)`.

        Spectra and hypotheses at an offset are those of at(offset). <R_i q, R_j k> = <R_{i-j} q, k>
        puts the turn into Q. Without rotary positions all offsets have the same form.
        """
        if self.rotary is None:
            return replace(self, slope=0.0)
        back = -float(offset)
        Q, b_Q = self.rotary.turned(self.Q.T, back).T, self.rotary.turned(self.b_Q[None], back)[0]
        return replace(self, Q=Q, b_Q=b_Q, rotary=None, slope=0.0)

    # --- the head as the model runs it ---

    def scores(self, x: Array) -> Float[np.ndarray, "n n"]:
        """What the softmax is given, biases and positions included; the masks are not applied."""
        x = self._tokens(x)
        place = np.arange(len(x))
        q, k = x @ self.Q.T + self.b_Q, x @ self.K.T + self.b_K
        if self.norm is not None:
            size_q, size_k = self.norm.sizes(x)
            q, k = q / size_q, k / size_k
        if self.rotary is not None:
            q, k = (self.rotary.turned(y, place) for y in (q, k))
        s = q @ k.T
        if self.slope:
            s += self.slope * (place - place[:, None])
        return s if self.cap is None else self.cap * np.tanh(s / self.cap)

    def weights(self, x: Array) -> Float[np.ndarray, "n n"]:
        """P, rows sum to 1, or less by what a `sink` takes; a causal head looks at j <= i only, one
        with a window not far."""
        s = self.scores(x)
        ahead = np.arange(len(s)) - np.arange(len(s))[:, None]
        if self.causal:
            s[ahead > 0] = -np.inf
        if self.window is not None:
            s[np.abs(ahead) >= self.window] = -np.inf
        lost = -np.inf if self.sink is None else self.sink
        top = np.maximum(s.max(axis=1, keepdims=True), lost)
        p = np.exp(s - top)
        return p / (p.sum(axis=1, keepdims=True) + np.exp(lost - top))

    def output(self, x: Array) -> Float[np.ndarray, "n d"]:
        """What the head adds to the tokens, without the layer's output bias."""
        x = self._tokens(x)
        return self.weights(x) @ (x @ self.W_V.T + self.b_V) @ self.W_O.T

    def _tokens(self, x: Array) -> np.ndarray:
        x = as_tokens(x, "x", ndim=2).astype(np.float64)
        if x.shape[1] != self.Q.shape[1]:
            raise ValueError(
                f"x: {self.name} acts on tokens with d = {self.Q.shape[1]}, got {x.shape}"
            )
        return x

    # --- the head as a dynamical system ---

    def lifted(self) -> Head:
        """The same head on tokens (x, 1) in R^{d+1}, where A and V contain the biases.

        Trap: this A is one of many with the same softmax (any (c, 0) may be added to its last row),
        so its antisymmetric share has no meaning by itself.
        """
        return replace(
            self,
            Q=np.column_stack([self.Q, self.b_Q]),
            K=np.column_stack([self.K, self.b_K]),
            W_V=np.column_stack([self.W_V, self.b_V]),
            W_O=np.vstack([self.W_O, np.zeros((1, self.W_O.shape[1]))]),  # the 1 stays 1
            b_Q=np.zeros_like(self.b_Q),
            b_K=np.zeros_like(self.b_K),
            b_V=np.zeros_like(self.b_V),
            norm=None if self.norm is None else self.norm.lifted(),
        )

    @cached_property
    def basis(self) -> Float[np.ndarray, "d r"]:
        """Orthonormal columns that span all the head reads (rows of Q, K, W_V) and writes (W_O)."""
        read: tuple[np.ndarray, ...] = (self.Q, self.K, self.W_V)
        if self.norm is not None:  # a gain of 0 hides a row from Q, and not from the norm
            read = (*read, self.norm.Q, self.norm.K)
        columns = [M / (float(np.linalg.norm(M)) or 1.0) for M in (*(M.T for M in read), self.W_O)]
        U, sigma, _ = np.linalg.svd(np.hstack(columns), full_matrices=False)
        return U[:, sigma > EXACT * sigma[0]]

    def inside(self) -> Head:
        """The same head on the coordinates x B of its `basis` B, r <= 4 d_k of them.

        In these coordinates it has the same scores and adds the same vectors: the head neither sees
        nor moves what is orthogonal to the basis. Its flows are computed in dimension r, not d.
        """
        B = self.basis
        norm = None if self.norm is None else self.norm.within(B)
        small = {"Q": self.Q @ B, "K": self.K @ B, "W_V": self.W_V @ B, "W_O": B.T @ self.W_O}
        return replace(self, **small, norm=norm)

    def attention(self) -> Attention:
        """The idealised attention: softmax of <A x_i, x_j>.

        Left out: biases (see `lifted`), positions (see `at`), norms of queries and keys, cap,
        window, sink.
        """
        softmax = Softmax(1.0, self.A)
        return Causal(softmax) if self.causal else softmax

    def flow(self) -> Flow:
        """x_i' = sum_j P_ij V x_j with this head's A and V, biases left out (see `lifted`)."""
        if self.causal:
            return flow_of([self])
        return EuclideanFlow(Q=self.Q, K=self.K, V=self.V)

    def leading_flow(self) -> LeadingFlow:
        """The same flow divided by its growth, y = exp(-l1 t) x: it neither overflows nor vanishes.

        l1 is the leading eigenvalue of V. Hyperplane limits (docs/mathematics.md B26) are the
        values <leading.dual, y_i>, see `Leading`.
        """
        if self.causal:
            raise ValueError(
                f"{self.name} is causal and LeadingFlow is not; use flow(), or drop the mask: "
                "dataclasses.replace(head, causal=False)"
            )
        return LeadingFlow(Q=self.Q, K=self.K, V=self.V)

    # --- spectra; everything happens in the small space A and V really act on ---

    @cached_property
    def core(self) -> Float[np.ndarray, "r r"]:
        """A in an orthonormal basis of the span of the rows of K and Q; r <= 2 d_k.

        A and its transpose vanish on the orthogonal complement, so the core has the non-zero
        spectrum of A, of A + Aᵀ, and the singular values of A.
        """
        R = np.asarray(np.linalg.qr(np.hstack([self.K.T, self.Q.T]), "r"))
        k = len(self.K)
        return R[:, :k] @ R[:, k:].T

    @cached_property
    def symmetric_eigenvalues(self) -> Float[np.ndarray, "d"]:
        """All d eigenvalues of (A + Aᵀ)/2, ascending, the structural zeros included."""
        values = np.linalg.eigvalsh((self.core + self.core.T) / 2)
        return np.sort(np.concatenate([values, np.zeros(self.Q.shape[1] - len(values))]))

    @cached_property
    def A_eigenvalues(self) -> Complex[np.ndarray, "k"]:
        """The min(d, d_k) eigenvalues of A that are not structural zeros, largest modulus first."""
        return _spectrum(self.Q, self.K.T)

    @cached_property
    def V_eigenvalues(self) -> Complex[np.ndarray, "m"]:
        """The min(d, d_k) eigenvalues of V that are not structural zeros, largest modulus first."""
        return _spectrum(self.W_V, self.W_O)

    @cached_property
    def leading(self) -> Leading | None:
        """The largest real positive eigenvalue of V; None when V has none."""
        values, left, right = scipy.linalg.eig(self.W_V @ self.W_O, left=True)
        size = np.abs(values)
        real = (values.imag == 0) & (values.real > EXACT * float(size.max()))
        if not real.any():
            return None
        i = int(np.argmax(np.where(real, values.real, -np.inf)))
        f = self.W_O @ right[:, i].real  # V W_O w = W_O (W_V W_O) w
        f /= np.linalg.norm(f)
        f *= np.sign(f[np.argmax(np.abs(f))])
        dual = self.W_V.T @ left[:, i].real
        value = float(values[i].real)
        others = np.delete(size, i)
        gap = 1.0 - (float(others.max()) / value if len(others) else 0.0)
        q, k = self.Q @ f, self.K @ f
        length = float(np.linalg.norm(q) * np.linalg.norm(k))
        form = float(q @ k)
        return Leading(value, f, dual / (dual @ f), gap, form, form / length if length else 0.0)

    def hypotheses(self) -> Hypotheses:
        """Each entry of HYPOTHESES with its relative distance: 0 holds, 1 is as far as can be.

        Distances are Frobenius distances to the set of matrices that satisfy the hypothesis,
        divided by the norm of A or V; for the leading eigenvalue, the share of the spectral radius
        by which it falls short; for <Qf, Kf>, minus the cosine of Qf and Kf. Definite is strict.

        Some fail by the shape of a head, d_k < d: (A + Aᵀ)/2 is the difference of two squares,
        |(K + Q)x|²/4 - |(K - Q)x|²/4, so when the 2 d_k rows of K and Q are independent it has d_k
        positive and d_k negative eigenvalues and is never even semidefinite; and a matrix of rank
        d_k is at distance √(1 - d_k/d) or more from every multiple of the identity.
        """
        d = self.Q.shape[1]
        size, lam = float(np.linalg.norm(self.core)) or 1.0, self.symmetric_eigenvalues
        skew = float(np.linalg.norm(self.core - self.core.T)) / 2 / size
        below = float(np.linalg.norm(np.minimum(lam, 0)))
        negative = below / (float(np.linalg.norm(lam)) or 1.0)
        definite = bool(lam[0] > EXACT * abs(lam[-1]))
        spd = float(np.hypot(skew, below / size))
        scalar, _ = _multiple_of_identity(np.trace(self.core), size, d)
        V_size = float(np.linalg.norm(small_product(self.W_O, self.W_V))) or 1.0
        plus, minus = _multiple_of_identity(np.trace(self.W_V @ self.W_O), V_size, d)
        lead = self.leading
        short = 1.0 if lead is None else max(0.0, 1 - 1 / max(1.0, 1 - lead.gap))
        against = 1.0 if lead is None else max(0.0, -lead.cosine)
        simple, semisimple = (lead is not None and lead.gap > x for x in (CLOSE, -CLOSE))
        acute = lead is not None and lead.cosine > 0
        judged = (
            (skew <= CLOSE, skew),
            (definite, negative),
            (definite and spd <= CLOSE, spd),
            (scalar <= CLOSE, scalar),
            (plus <= CLOSE, plus),
            (minus <= CLOSE, minus),
            (simple, short),
            (acute, against),
            (simple and acute, max(short, against)),
            (definite and spd <= CLOSE and semisimple, max(spd, short)),
        )
        found = (Hypothesis(n, bool(holds), float(x)) for n, (holds, x) in zip(HYPOTHESES, judged))
        return Hypotheses(found, "relative distance: 0 holds, 1 is as far as can be")


def flow_of(heads: Sequence[Head]) -> Flow:
    """All heads of a layer together: x_i' = sum_h V_h sum_j P^h_ij x_j."""
    if not heads:
        raise ValueError("heads: expected at least one head, got none")
    rules, values = [head.attention() for head in heads], [head.V for head in heads]
    return UnnormalizedFlow(Heads(rules, values, average=False))


def _spectrum(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Eigenvalues of left @ right (k, k), or of right @ left if that one is smaller; in order."""
    small = left @ right if len(left) <= len(right) else right @ left
    values = np.linalg.eigvals(small).astype(np.complex128)
    return values[np.argsort(-np.abs(values), kind="stable")]


def small_product(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """A small matrix with the singular values of left (d, m) @ right (m, d)."""
    return np.asarray(np.linalg.qr(left, "r")) @ np.asarray(np.linalg.qr(right.T, "r")).T


def _multiple_of_identity(trace: Any, norm: float, d: int) -> tuple[float, float]:
    """Relative distances of a d x d matrix to cI with c > 0, and to cI with c < 0."""
    cosine = float(trace) / (norm * np.sqrt(d))
    near = float(np.sqrt(max(0.0, 1 - cosine * cosine)))
    return (near if cosine > 0 else 1.0), (near if cosine < 0 else 1.0)
