"""Trace: a sentence passing through a real transformer, and the tables that read one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np

from ..._display import Shown
from ..._frames import dataframe, dataset
from ..._shapes import Float
from ...analysis.clustering import clusters, tolerance_curve
from ...analysis.spectra.rates import energy
from ...simulation.trajectory import Trajectory
from ..loading.images import Grid

BINS = np.linspace(-1, 1, 21)  # of the histogram of pairwise cosines
TOLERANCES = np.linspace(0.05, 2, 40)  # in units of the layer's root-mean-square token length
NEAR = 0.5  # the tolerance at which `sentence_table` counts clusters, in the same unit
TIED = 100  # roundings within which two weights of P count as equal
EPSILON = 0.01  # singular values of P below this share of the largest do not count


@final
@dataclass(frozen=True, eq=False)
class Trace(Shown):
    """Tokens by layer of a real transformer, with the attention of every head.

    `trajectory.z[k]` are the tokens after k layers (before a final norm, where the model has one);
    `attentions[k, h]` is the matrix P of head h in layer k, as the model computed it; `seen[k]` the
    tokens that attention was given. `groups[i]` numbers the word of token i, `names` the words. Of
    a picture, `grid` has the places of the patches, and `picture` is what can be looked at.
    """

    trajectory: Trajectory
    attentions: Float[np.ndarray, "layers heads n n"]
    seen: Float[np.ndarray, "layers n d"]
    groups: tuple[int, ...] | None = None
    names: tuple[str, ...] | None = None
    grid: Grid | None = None
    picture: Float[np.ndarray, "h w 3"] | None = None

    def __repr__(self) -> str:
        layers, heads, n, _ = self.attentions.shape
        return f"Trace({layers} layers, {heads} heads, {n} tokens)"

    def _table(self) -> list[tuple[str, object]]:
        first, *_, last = sentence_table(self)
        said, more = self.words or (), " ..." if len(self.words or ()) > 30 else ""
        cosines = (first["mean_cosine"], last["mean_cosine"])
        mean = " to ".join("-" if x is None else f"{x:.3f}" for x in cosines)
        return [
            ("read", repr(self)),
            ("status", self.trajectory.status.message),
            *[("words", " ".join(said[:30]) + more)] * bool(said),
            ("mean cosine, first to last layer", mean),
            ("clusters, first to last layer", f"{first['clusters']} to {last['clusters']}"),
        ]

    @property
    def z(self) -> np.ndarray:
        return self.trajectory.values

    @property
    def words(self) -> tuple[str, ...] | None:
        return self.trajectory.words

    def by_word(self) -> Trace:
        """One token per word instead of one per piece.

        A word's token is the mean of its pieces. The weight P_ij between words is the mean over the
        pieces of i of the sum over the pieces of j.
        """
        if self.groups is None or self.names is None:
            raise ValueError("words: this trace has no text, so its tokens cannot be grouped")
        group = np.array(self.groups)
        belongs = np.eye(len(self.names))[:, group]
        mean = belongs / belongs.sum(axis=1, keepdims=True)
        dtype = self.z.dtype
        return replace(
            self,
            trajectory=replace(self.trajectory, z=(mean @ self.z).astype(dtype), words=self.names),
            attentions=(mean @ self.attentions @ belongs.T).astype(self.attentions.dtype),
            seen=(mean @ self.seen).astype(self.seen.dtype),
            groups=tuple(range(len(self.names))),
        )

    def to_dataframe(self) -> Any:
        """A pandas DataFrame with one row per layer and head, see `attention_table`."""
        return dataframe(attention_table(self))

    def to_xarray(self) -> Any:
        """An xarray Dataset: P over layer, head, query, key; tokens over depth, token, dim."""
        values = {
            "P": (("layer", "head", "query", "key"), self.attentions),
            "z": (("depth", "token", "dim"), self.z),
            "seen": (("layer", "token", "dim"), self.seen),
        }
        words = {} if self.words is None else {"word": (("token",), np.array(self.words))}
        return dataset(values, words, {"status": self.trajectory.status.message})


def cosines(z: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "pairs"]:
    """Cosines of all pairs i < j; pairs with a zero token are left out."""
    z = np.asarray(z, dtype=np.float64)
    length = np.linalg.norm(z, axis=1)
    unit = z[length > 0] / length[length > 0, None]
    return np.clip((unit @ unit.T)[np.triu_indices(len(unit), 1)], -1, 1)


def sentence_table(trace: Trace) -> list[dict[str, Any]]:
    """One row per layer: lengths, pairwise cosines with their histogram, clusters, energy.

    `energy` is the mean of exp(<u_i, u_j> - 1) over all pairs of directions u = z/|z|, which the
    flows of arXiv 2312.10794 never lower: 1 where all agree. `clusters` counts at tolerance 0.5 in
    units of the root-mean-square length of the layer's tokens; `tolerances` and `cluster_counts`
    are the whole staircase in that unit.
    """
    rows = []
    for k, z in zip(trace.trajectory.t.tolist(), trace.z.astype(np.float64), strict=True):
        pairs = cosines(z)
        scale = float(np.sqrt((z**2).sum(axis=1).mean())) or 1.0
        counts = tolerance_curve(z / scale, TOLERANCES)[1]
        length = np.linalg.norm(z, axis=1, keepdims=True)
        rows.append(
            {
                "layer": k,
                "length": scale,
                "mean_cosine": float(pairs.mean()) if len(pairs) else None,
                "energy": float(energy((z / np.where(length > 0, length, 1.0))[None], 1.0)[0]),
                "cosine_histogram": np.histogram(pairs, BINS)[0].tolist(),
                "clusters": clusters(z / scale, NEAR).count,
                "tolerances": TOLERANCES.tolist(),
                "cluster_counts": counts.tolist(),
            }
        )
    return rows


def attention_table(trace: Trace, epsilon: float = EPSILON) -> list[dict[str, Any]]:
    """One row per layer and head: sink, leaders, ε-rank, hardmax-likeness.

    `sink` is the token that receives most attention and `sink_mass` its share of all of it;
    `leaders` the tokens whose own largest weight is on themselves alone, `followed` those that are
    somebody's largest; `argmax_mass` the mean of max_j P_ij (1 is hardmax); `epsilon_rank` the
    number of singular values of P above epsilon times the largest.

    Traps: weights within 100 roundings of the largest count as tied; otherwise, among tokens that
    have met, rounding would choose leaders. In a causal head the first token sees only itself,
    P_00 = 1, so it always leads.
    """
    words = trace.words
    share = 1 - TIED * float(np.finfo(trace.attentions.dtype).eps)
    rows = []
    for k, layer in enumerate(trace.attentions):
        for h, P in enumerate(layer.astype(np.float64)):
            received = P.mean(axis=0)
            sink = int(received.argmax())
            largest = share * P.max(axis=1, keepdims=True) <= P
            alone = largest.diagonal() & (largest.sum(axis=1) == 1)
            sigma = np.linalg.svd(P, compute_uv=False)
            rows.append(
                {
                    "layer": k,
                    "index": h,
                    "head": f"L{k}H{h}",
                    "sink": sink,
                    "sink_word": None if words is None else words[sink],
                    "sink_mass": float(received[sink]),
                    "leaders": np.flatnonzero(alone).tolist(),
                    "followed": np.flatnonzero(largest.any(axis=0)).tolist(),
                    "argmax_mass": float(P.max(axis=1).mean()),
                    "epsilon_rank": int((sigma > epsilon * sigma[0]).sum()),
                }
            )
    return rows


def leaders_by_layer(trace: Trace) -> list[dict[str, Any]]:
    """One row per layer and token: in how many heads it leads, is followed, is the sink."""
    layers, _, n, _ = trace.attentions.shape
    counts = np.zeros((layers, n, 3), dtype=int)
    for row in attention_table(trace):
        counts[row["layer"], row["leaders"], 0] += 1
        counts[row["layer"], row["followed"], 1] += 1
        counts[row["layer"], row["sink"], 2] += 1
    return [
        {
            "layer": k,
            "token": i,
            "word": None if trace.words is None else trace.words[i],
            **dict(zip(("leads", "followed", "sink"), counts[k, i].tolist())),
        }
        for k in range(layers)
        for i in range(n)
    ]


def settling(trajectory: Trajectory, tol: float = 0.01) -> dict[str, Any]:
    """Where an iterated layer ends: clusters of its tokens, of their directions, and its rate.

    `clusters` counts at `tol` times the root-mean-square token length of the last layer, and
    `directions` at `tol` among the tokens divided by their length. `rate` is the factor by which
    the steps of those unit tokens shrink per layer, fitted to the logarithm of the largest step
    over the second half of the run, as far as the steps are above rounding; `growth` is the factor
    by which the mean token length grows per layer at the end. `step` is the last such step: a run
    with step near 0 has converged, one with rate about 1 circles or still moves.
    """
    z = trajectory.values.astype(np.float64)
    if len(z) < 2:
        raise ValueError("trajectory: needs at least one layer beyond the start to see it settle")
    length = np.linalg.norm(z, axis=-1)
    unit = z / np.where(length > 0, length, 1)[..., None]
    steps = np.linalg.norm(np.diff(unit, axis=0), axis=-1).max(axis=-1)
    use = steps > 20 * float(np.finfo(trajectory.values.dtype).eps)
    late = use & (np.arange(len(steps)) >= use.sum() // 2)
    rate = None
    if late.sum() >= 3:
        rate = float(np.exp(np.polyfit(trajectory.t[1:][late], np.log(steps[late]), 1)[0]))
    scale = float(np.sqrt((length[-1] ** 2).mean())) or 1.0
    mean = length.mean(axis=1)
    gap = trajectory.t[-1] - trajectory.t[-2]
    grown = float((mean[-1] / mean[-2]) ** (1 / gap)) if mean[-2] > 0 else None
    return {
        "layers": int(trajectory.t[-1]),
        "clusters": clusters(z[-1] / scale, tol).count,
        "directions": clusters(unit[-1], tol).count,
        "mean_cosine": float(cosines(z[-1]).mean()) if z.shape[1] > 1 else None,
        "rate": rate,
        "growth": grown,
        "step": float(steps[-1]),
    }
