"""Survey: a text of any length in a model, layer by layer, without holding P or all tokens.

Who leads, where attention sinks, how sharp it is; how many clusters the tokens form, what rank they
have, how fast they gather.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, final

import numpy as np

from ..._display import Shown, grid
from ..._frames import dataframe, dataset
from ..._progress import Progress, showing
from ..._shapes import Float, Int
from ..loading.memory import in_words, require, told
from .hooks import first, quiet
from .rows import BUDGET, Rows, by_rows, rows_at_once
from .traces import EPSILON, NEAR, TIED, Trace

if TYPE_CHECKING:
    from .transformer import Transformer

HEADS = tuple(
    "entropy evenness argmax_mass first_mass follow_first sink sink_mass leaders followed "
    "first_own first_leads".split()
)
TOKENS = tuple("length mean_cosine spread rank effective_rank clusters first_length".split())

_FEWER = "take fewer tokens, or a smaller model"


@final
@dataclass(frozen=True, eq=False)
class Survey(Shown):
    """Statistics of a text by layer and head (`heads`), and by layer (`tokens`).

    Of `heads`, arrays (layers, heads): `entropy` of a row of P in nats, and `evenness`, its share
    of that of a uniform row (1 uniform, 0 hardmax), means over the tokens that see more than one;
    `argmax_mass`, the mean of max_j P_ij; `first_mass`, the share of all attention that the first
    token receives, and `follow_first`, the share of the others that give it their largest weight;
    `sink`, the token that receives most, and `sink_mass`; `leaders`, tokens whose own largest
    weight is on themselves alone; `followed`, those that are somebody's largest. Were there no
    mask: `first_own`, the weight of the first token on itself, and `first_leads`, 1 where that is
    its largest alone, C_0 = {0}, a leader in the sense of the theory (NaN for BLOOM).

    Of `tokens`, arrays (layers + 1,): root-mean-square `length`; `mean_cosine` of pairs; `spread`,
    the root-mean-square distance of z/|z| from its mean, 0 when all point one way; `rank`, the
    singular values above 1 % of the largest; `effective_rank`, exp of the entropy of their squares;
    `clusters` at half the length; `first_length`, the first token's in units of the median one's.

    Trap: in a causal model the first token sees only itself, so it counts as a leader and its row
    is left out of `evenness`; `first_leads` is the question it cannot answer that way.
    """

    model: str
    n: int
    heads: dict[str, Float[np.ndarray, "layers heads"]]
    tokens: dict[str, Float[np.ndarray, "depth"]]
    leads: Int[np.ndarray, "layers n"]  # in how many heads each token leads
    words: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        layers, heads = self.heads["entropy"].shape
        return f"Survey({self.model!r}, {layers} layers of {heads} heads, {self.n} tokens)"

    def _repr_html_(self) -> str:
        names = ("layer", "mean_cosine", "effective_rank", "clusters", "evenness", "sink_mass")
        rows = [[row[name] for name in names] for row in self.table()]
        return f"<p>{escape(repr(self))}</p>" + grid(names, rows, len(rows))

    @property
    def collapse(self) -> float:
        """The factor by which `spread` changes per layer, fitted over all layers: < 1 gathers."""
        spread = self.tokens["spread"]
        k = np.flatnonzero(spread > 0)
        if len(k) < 2:
            return 0.0
        return float(np.exp(np.polyfit(k, np.log(spread[k]), 1)[0]))

    def table(self) -> list[dict[str, Any]]:
        """One row per layer: means over its heads, and its tokens (as they enter the layer)."""
        means = {name: x.mean(axis=1) for name, x in self.heads.items() if name != "sink"}
        return [
            {"layer": k} | {name: float(x[k]) for name, x in (self.tokens | means).items()}
            for k in range(len(self.leads))
        ]

    def to_dataframe(self) -> Any:
        """A pandas DataFrame with one row per layer and head."""
        layers, heads = self.heads["entropy"].shape
        k, h = np.divmod(np.arange(layers * heads), heads)
        place = {"layer": k, "head": h}
        by_layer = {name: np.repeat(x[:-1], heads) for name, x in self.tokens.items()}
        return dataframe(place | {k: x.ravel() for k, x in self.heads.items()} | by_layer)

    def to_xarray(self) -> Any:
        """An xarray Dataset over layer, head, token, and depth (layers and the end)."""
        values: dict[str, Any] = {k: (("layer", "head"), x) for k, x in self.heads.items()}
        values |= {f"tokens_{k}": (("depth",), x) for k, x in self.tokens.items()}
        values |= {"leads": (("layer", "token"), self.leads)}
        words = {} if self.words is None else {"word": (("token",), np.array(self.words))}
        about = {"model": self.model, "collapse": self.collapse, "notes": " ".join(self.notes)}
        return dataset(values, words, about)


def survey(
    transformer: Transformer, tokens: Any, *, budget: int = BUDGET, progress: Progress = None
) -> Survey:
    """The text passed once through the model, `budget` bytes of P at a time.

    Beside the weights it takes about 6 `budget`, and n (n + 8 d + 3 m) numbers for the mask of a
    causal model, the tokens of one layer and the m inner units of its feed-forward part.
    """
    text = transformer._read(tokens)
    given = np.shape(tokens)[0] if text.pieces is None and not text.ids else 0
    n = given or len(text.pieces or text.ids)
    size = transformer.model.dtype.itemsize
    d = int(transformer.model.config.hidden_size)
    rows = rows_at_once(transformer.width, n, size, budget)
    if not transformer.model._can_set_attn_implementation():
        rows = n  # a family with its own code, see `by_rows`
    inner = getattr(transformer.model.config, "intermediate_size", None) or 4 * d
    needed = 6 * size * transformer.width * rows * n + size * n * (n + 8 * d + 3 * int(inner))
    require(needed, f"survey: {n} tokens in R^{d}, {rows} rows of P at a time", _FEWER)
    watch = _Watch(transformer.width, n)
    model, adapter = transformer.model, transformer.adapter
    seen = by_rows(model, adapter, watch.see, rows)
    bar = showing(progress, "surveying", transformer.depth, " layers")
    with told(_FEWER), seen as attention, quiet(model, adapter, attention), bar as watch.tell:
        watch.run(transformer, tokens, text)
    notes = (
        *text.notes,
        f"{rows} rows of P at a time, {in_words(needed)} in addition to the weights.",
    )
    return watch.survey(transformer.name, text.pieces, notes)


def surveyed_trace(
    transformer: Transformer, tokens: Any, layers: int | None = None, *, words: bool = False
) -> tuple[Trace, Survey]:
    """`trace` and `survey` from one pass through the model, for a text whose P can be held."""
    rows: list[Rows] = []
    depth = transformer.depth
    with by_rows(transformer.model, transformer.adapter, rows.append, sys.maxsize) as attention:
        calls, text = transformer.pass_on(tokens, layers, attention=attention, least=depth)
    watch = _Watch(transformer.width, calls[0].z.shape[1])
    for seen, call in zip(rows[-len(calls) :], calls[:depth]):  # a rehearsal may come before
        watch.points.append(_points(call.z))
        watch.see(seen)
        watch.layers.append(watch.closed())
    watch.points.append(_points(calls[depth - 1].out))
    trace = transformer.traced(calls[:layers], text, words=words)
    return trace, watch.survey(transformer.name, text.pieces, text.notes)


@final
class _Watch:
    """Sums over the rows of P as they go by, closed when a block ends."""

    def __init__(self, heads: int, n: int) -> None:
        self.heads, self.n = heads, n
        self.layers: list[dict[str, np.ndarray]] = []
        self.points: list[dict[str, float]] = []
        self.sums: dict[str, np.ndarray] = {}
        self.tell: Callable[..., Any] | None = None

    def run(self, transformer: Transformer, tokens: Any, text: Any) -> None:
        """The text through the model; tokens in front of each block and behind the last."""
        from .transformer import is_tokens

        blocks = transformer.adapter.blocks(transformer.model)
        if is_tokens(tokens):
            z = transformer._tensor(tokens)
            for block, call in zip(blocks, transformer._rehearse(self.n, P=False), strict=True):
                self.points.append(_points(z))
                self.sums = {}  # what the rehearsal showed is not the text
                z = first(block(z, *call.block[0], **call.block[1]))
                self.layers.append(self.closed())
            self.points.append(_points(z))
            return

        def before(_: Any, args: Any, kwargs: Any) -> None:
            self.points.append(_points(args[0] if args else kwargs["hidden_states"]))

        def after(_: Any, args: Any, out: Any) -> None:
            self.layers.append(self.closed())
            if len(self.layers) == len(blocks):
                self.points.append(_points(first(out)))

        own = dict.fromkeys(blocks)  # layers may be the same module again and again
        handles = [block.register_forward_pre_hook(before, with_kwargs=True) for block in own]
        handles += [block.register_forward_hook(after) for block in own]
        try:
            transformer._forward(**transformer._inputs(text))
        finally:
            for handle in handles:
                handle.remove()

    def survey(self, name: str, words: tuple[str, ...] | None, notes: tuple[str, ...]) -> Survey:
        heads = {k: np.stack([layer[k] for layer in self.layers]) for k in self.layers[0]}
        leads = heads.pop("leading").astype(np.int64).reshape(-1, self.n)
        points = {k: np.array([point[k] for point in self.points]) for k in self.points[0]}
        return Survey(name, self.n, heads, points, leads, words, notes)

    def see(self, rows: Rows) -> None:
        import torch

        P, start = rows.P, rows.start
        r = P.shape[1]
        share = 1 - TIED * torch.finfo(P.dtype).eps
        top = P.amax(dim=-1, keepdim=True)
        largest = share * top <= P
        at = torch.arange(r)
        alone = largest[:, at, start + at] & (largest.sum(dim=-1) == 1)
        entropy = torch.special.entr(P).sum(dim=-1).double()
        seen = rows.visible.to(P.device)
        some = seen > 1
        even = entropy[:, some] / torch.log(seen[some].double())
        beyond = (0, self.n - P.shape[2])  # columns that were left out
        pad = torch.nn.functional.pad
        new = {
            "received": pad(P.sum(dim=1).double(), beyond),
            "entropy": entropy.sum(dim=1),
            "even": even.sum(dim=1),
            "counted": some.sum().expand(self.heads),
            "top": top[..., 0].double().sum(dim=1),
            "followers": largest[:, int(start == 0) :, 0].sum(dim=1),
            "followed": pad(largest.any(dim=1), beyond),
            "alone": pad(alone.double(), (start, self.n - start - r)),
        }
        if start == 0:
            unknown = torch.full((self.heads, self.n), float("nan"))
            new["first_row"] = unknown if rows.first is None else rows.first.double()
        for name, values in new.items():
            self.sums[name] = self.sums.get(name, 0) + values.cpu().double().numpy()

    def closed(self) -> dict[str, np.ndarray]:
        """The layer that has just ended, by head."""
        if self.tell is not None:
            self.tell(len(self.layers) + 1)
        s, n = self.sums, self.n
        self.sums = {}
        received, row = s["received"] / n, s["first_row"]
        sink = received.argmax(axis=1)
        share = 1 - TIED * float(np.finfo(np.float32).eps)
        own = row[:, 0]
        rival = row[:, 1:].max(axis=1) if n > 1 else np.zeros(len(row))
        leads = np.where(np.isnan(own), np.nan, (rival < share * own).astype(float))
        return {
            "entropy": s["entropy"] / n,
            "evenness": s["even"] / np.maximum(s["counted"], 1),
            "argmax_mass": s["top"] / n,
            "first_mass": received[:, 0],
            "follow_first": s["followers"] / max(n - 1, 1),
            "sink": sink.astype(float),
            "sink_mass": received[np.arange(len(sink)), sink],
            "leaders": s["alone"].sum(axis=1),
            "followed": (s["followed"] > 0).sum(axis=1).astype(float),
            "first_own": own,
            "first_leads": leads,
            "leading": s["alone"].sum(axis=0),
        }


def _points(z: Any) -> dict[str, float]:
    """Statistics of the tokens z (1, n, d) of one layer; nothing larger than n² or d² is made."""
    x = z[0].detach().float() if z.dtype.itemsize < 4 else z[0].detach()
    n = len(x)
    length = x.norm(dim=1)
    scale = float(length.double().pow(2).mean().sqrt()) or 1.0
    unit = x / length.clamp_min(1e-300 if x.dtype.itemsize == 8 else 1e-30)[:, None]
    mean = unit.double().mean(dim=0)
    spread = float((unit.double() - mean).pow(2).sum(dim=1).mean().sqrt())
    middle = float(length.median()) or 1.0
    rank, effective = _ranks(x / scale)
    return {
        "length": scale,
        "mean_cosine": (n * float(mean.pow(2).sum()) - 1) / (n - 1) if n > 1 else 1.0,
        "spread": spread,
        "rank": float(rank),
        "effective_rank": effective,
        "clusters": float(_joined(x / scale, NEAR)),
        "first_length": float(length[0]) / middle,
    }


def _ranks(x: Any) -> tuple[int, float]:
    """ε-rank and effective rank, from the smaller of the two Gram matrices."""
    import torch

    gram = x.T @ x if x.shape[0] > x.shape[1] else x @ x.T
    squares = torch.linalg.eigvalsh(gram).clamp_min(0).double().cpu().numpy()[::-1]
    share = squares / (squares.sum() or 1.0)
    used = share[share > 0]
    rank = int((squares > EPSILON**2 * squares[0]).sum())
    return rank, float(np.exp(-(used * np.log(used)).sum()))


def _joined(x: Any, tol: float) -> int:
    """Clusters at `tol` as `analysis.clustering.clusters` counts them, from products of tokens: its
    search trees are slow for thousands of tokens in thousands of dimensions."""
    square = (x * x).sum(dim=1)
    n = len(x)
    near = np.empty((n, n), dtype=bool)
    step = max(1, BUDGET // (8 * n))
    for start in range(0, n, step):
        here = slice(start, start + step)
        distance = square[here, None] + square - 2 * (x[here] @ x.T)
        near[here] = (distance <= tol * tol).cpu().numpy()
    return _components(near)


def _components(near: np.ndarray) -> int:
    """Connected components of a symmetric relation (n, n)."""
    left, count = np.ones(len(near), dtype=bool), 0
    while left.any():
        count += 1
        reached = np.arange(len(near)) == left.argmax()
        while reached.any():
            left &= ~reached
            reached = near[reached].any(axis=0) & left
    return count
