"""Forms A beyond the symmetric positive definite ones, among them those A = K^T Q of trained heads,
and what such a form does to a run."""

from importlib.util import find_spec
from typing import NamedTuple

import numpy as np

import cynosure as cy
from cynosure import study as st
from cynosure.pretrained.reading.examples import SENTENCE, example_transformer, weights_note

from .._extremes import standing_out

_WATCHED = 6  # layers searched for circles
_SAME = 1e-9  # of the longest token: limits nearer than this are one
_MOST = 1000  # layers within which a limit is looked for; a start that needs more is undecided
FAMILIES = (
    *("symmetric positive definite", "positive definite symmetric part", "arbitrary"),
    *("symmetric, indefinite", "symmetric, low rank", "minus the identity", "antisymmetric"),
)


def turn(d: int, degrees: int) -> np.ndarray:
    """A rotation by the angle in every plane (0,1), (2,3), ...; a left-over axis stays."""
    A, t = np.eye(d), np.deg2rad(degrees)
    for i in range(0, d - 1, 2):
        A[i : i + 2, i : i + 2] = [[np.cos(t), -np.sin(t)], [np.sin(t), np.cos(t)]]
    return A


def form_of(family: str, d: int, rng: np.random.Generator) -> np.ndarray:
    """A random form of one of FAMILIES."""
    if family == "minus the identity":
        return -np.eye(d)
    M = rng.standard_normal((d, max(1, d // 2) if family == "symmetric, low rank" else d))
    if family == "arbitrary":
        return M
    if family == "antisymmetric":
        return M - M.T
    if family == "positive definite symmetric part":
        return M - M.T + form_of("symmetric positive definite", d, rng)
    S = M @ M.T
    if family == "symmetric positive definite":
        S += 0.1 * np.eye(d)
    elif family == "symmetric, indefinite":
        q, signs = np.linalg.qr(M)[0], np.where(np.arange(d) % 2 == 0, 1.0, -1.0)
        S = (q * (signs * rng.uniform(0.5, 2, d))) @ q.T
    return (S + S.T) / 2  # symmetric to the last bit


class FormEffect(NamedTuple):
    """What a form A did to one run."""

    certified: bool  # every token's limit is proved
    leaders: int  # places of leaders
    limits: int  # distinct ones
    vertices: int  # of K, the hull of the limits; 0 where some limit is not proved
    led: int  # vertices of K where a leader stands
    cycle: bool  # at one of the first layers tokens follow each other in a circle
    norms_fell: bool  # |z_i| (or |z_i|_A where that is a norm) fell at some layer
    left_hull: float  # how far a token left the hull of the layer before, by supporting directions


def effect_of(A: np.ndarray, z0: np.ndarray, alpha: float | int, layers: int) -> FormEffect:
    """The limit under A, and what so many layers did to norms and hull on the way."""
    dynamics = cy.PureAttention(cy.Hardmax(A), alpha=alpha)
    li = cy.limit(dynamics, z0, max_layers=_MOST)
    z = cy.simulate(dynamics, z0, layers=layers, throw=False).values
    longest = float(np.linalg.norm(z0, axis=1).max())
    limits = cy.clusters(li.points, tol=_SAME * longest).centres
    places = li.points[li.leaders]
    leaders = cy.clusters(places, tol=_SAME * longest).count if len(places) else 0
    corners = limits[standing_out(limits) > _SAME * longest] if li.certified else limits[:0]
    led = (np.linalg.norm(corners[:, None] - places, axis=-1) <= _SAME * longest).any(axis=1)
    norms = np.einsum("kia,ab,kib->ki", z, A if _definite(A) else np.eye(len(A)), z)
    directions = np.random.default_rng(0).standard_normal((64, z.shape[-1]))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    width = (z @ directions.T).max(axis=1)  # support function of the hull by layer
    return FormEffect(
        certified=li.certified,
        leaders=leaders,
        limits=len(limits),
        vertices=len(corners),
        led=int(led.sum()),
        cycle=any(circle(cy.Hardmax(A).followed(zk).target, zk) for zk in z[:_WATCHED]),
        norms_fell=bool((norms[1:] < norms[:-1] * (1 - 1e-9) - 1e-12 * longest**2).any()),
        left_hull=float(np.diff(width, axis=0).max()) / longest,
    )


def _definite(A: np.ndarray) -> bool:
    return bool((A == A.T).all() and np.linalg.eigvalsh(A)[0] > 0)


def circle(target: np.ndarray, z: np.ndarray) -> bool:
    """Does i -> target[i] have a cycle through different values of z? (Tokens that met are one.)"""
    image = np.arange(len(target))
    for _ in range(len(target)):  # after n steps everybody is on a cycle
        image = target[image]
    ends = np.unique(image)
    apart = np.abs(z[target[ends]] - z[ends]).max(axis=1)
    return bool((apart > _SAME * np.abs(z).max()).any())


# --- heads of a trained transformer --------------------------------------------------------------


class LearnedForm(NamedTuple):
    """The A of one head, and what it does to the tokens of a sentence."""

    head: str
    alpha: float
    tokens: int
    antisymmetric: float  # |A - A^T| / 2|A|, Frobenius
    least: float  # eigenvalue of the symmetric part, divided by the largest size of one
    effect: FormEffect


def heads(
    model: str, blocks: int, alphas: tuple[float, ...], layers: int, progress: st.Progress
) -> list[LearnedForm]:
    """Heads of the first blocks of the model named, or of MiniLM where it is installed."""
    if not blocks or find_spec("transformers") is None:
        return []
    transformer = example_transformer(model)
    if weights_note(transformer):  # random weights stand in for a model that is not there
        return []
    found = [h for k in range(min(blocks, transformer.depth)) for h in transformer.heads(k)]
    z0 = transformer.trace(SENTENCE).z[0].astype(np.float64)
    forms = [(h.name, h.A.astype(np.float64)) for h in found]
    every = [(*form, z0, float(alpha), layers) for form in forms for alpha in alphas]
    return st.kept_each(_learned, every, progress, [args[0] for args in every])


def _learned(
    name: str, A: np.ndarray, z0: np.ndarray, alpha: float | int, layers: int
) -> LearnedForm:
    eigenvalues = np.linalg.eigvalsh((A + A.T) / 2)
    share = float(np.linalg.norm(A - A.T) / 2 / np.linalg.norm(A))
    least = float(eigenvalues[0] / np.abs(eigenvalues).max())
    effect = effect_of(*_on_span(A, z0), alpha, layers)
    return LearnedForm(name, float(alpha), len(z0), share, least, effect)


def _on_span(A: np.ndarray, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Form and tokens in coordinates of the span of the tokens, which layers never leave.

    A dozen tokens in R^384 are tokens in R^12: exact arithmetic is thirty times cheaper there.
    """
    if z.shape[1] <= len(z):
        return A, z
    Q = np.linalg.qr(z.T)[0]
    return Q.T @ A @ Q, z @ Q


def head_table(heads: list[LearnedForm]) -> st.Table:
    columns = {
        **{"head": "head", "alpha": "alpha", "antisymmetric share": "antisymmetric"},
        **{"least / largest eigenvalue": "least", "proved": "effect.certified"},
        **{"leaders": "effect.leaders", "limits": "effect.limits", "circle": "effect.cycle"},
        "norms fell": "effect.norms_fell",
    }
    note = f"{heads[0].tokens} tokens of a sentence; eigenvalues of the symmetric part of A."
    return st.Table.of("Heads of a trained transformer", heads, columns, note)


def learned_text(heads: list[LearnedForm]) -> str:
    if not heads:
        return ""
    by_alpha = st.grouped(heads, "alpha")
    one = next(iter(by_alpha.values()))
    of = [h.effect for h in one]
    lead = [f"{sum(h.effect.leaders > 0 for h in x)} at alpha = {a:g}" for a, x in by_alpha.items()]
    return (
        f"\n\nOf {len(one)} heads of a trained transformer {sum(h.least > 0 for h in one)} "
        f"have a positive definite symmetric part; the median antisymmetric share is "
        f"{np.median([h.antisymmetric for h in one]):.2f}. As hardmax layers on the "
        f"{one[0].tokens} tokens of a sentence so many have a leader: {', '.join(lead)}. At alpha "
        f"= {one[0].alpha:g}, {sum(f.certified for f in of)} of the limits are proved, "
        f"{sum(f.limits == 1 for f in of)} heads leave one limit, {sum(f.cycle for f in of)} show "
        f"followers in a circle, and norms fall in {sum(f.norms_fell for f in of)}."
    )
