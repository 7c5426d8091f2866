"""What the sentiment experiments share: reviews as value classes, the learned model, its training.

A review of the words j_1..j_m enters as its *distinct* words with multiplicities c_j. Equal tokens
are one value class (docs/mathematics.md C4), so

    P_ij = c_j exp(<z_i, z_j> / tau) / sum_l c_l exp(<z_i, z_l> / tau)
    z_i <- (z_i + alpha sum_j P_ij z_j) / (1 + alpha),   decision = b + <v, sum_i c_i z_i / m>

is the model of arXiv 2407.01602 on the sequence, exactly, at a third of the cost; c = 0 is padding.
Trap: this module runs where only NumPy and torch are installed; torch is imported when training.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, final

import numpy as np

from ..._files import write_atomically

if TYPE_CHECKING:
    from ...classifier.datasets import Dataset

__all__ = [
    "Ids", "Led", "Reviews", "Task", "Training", "Variant", "decisions", "evaluate", "evenly",
    "final_tokens", "initial", "labelled", "led", "numbered", "one_thread", "task", "train",
    "with_padding",
]  # fmt: skip

# The English stop words of the Snowball project, as removed by the paper (through NLTK).
STOP_WORDS = frozenset(
    "i me my myself we our ours ourselves you your yours yourself yourselves he him his himself "
    "she her hers herself it its itself they them their theirs themselves what which who whom "
    "this that these those am is are was were be been being have has had having do does did doing "
    "a an the and but if or because as until while of at by for with about against between into "
    "through during before after above below to from up down in out on off over under again "
    "further then once here there when where why how all any both each few more most other some "
    "such no nor not only own same so than too very s t can will just don should now d ll m o re "
    "ve y ain aren couldn didn doesn hadn hasn haven isn ma mightn mustn needn shan shouldn wasn "
    "weren won wouldn don't should've aren't couldn't didn't doesn't hadn't hasn't haven't isn't "
    "mightn't mustn't needn't shan't shouldn't wasn't weren't won't wouldn't you're you've you'll "
    "you'd she's it's that'll i'm i've i'll i'd he's we're they're".split()
)


# --- reviews ------------------------------------------------------------------------------------


@final
@dataclass(frozen=True, eq=False)
class Ids:
    """Reviews as sequences of word numbers, both parts, the first `longest` known words of each.

    The vocabulary is that of the training part. `held` marks the training reviews to hold out:
    blocks of consecutive ones, since neighbours are often about the same film.
    """

    words: tuple[str, ...]
    train: tuple[np.ndarray, np.ndarray]  # indptr, ids
    test: tuple[np.ndarray, np.ndarray]
    y_train: np.ndarray
    y_test: np.ndarray
    held: np.ndarray

    @classmethod
    def of(cls, train: Dataset, test: Dataset, *, longest: int = 512, min_df: int = 2) -> Ids:
        """Number the words of both parts; the second label in alphabetical order is y = True."""
        from ...classifier.datasets import blocks
        from ...classifier.text import Tokenizer, Vocabulary

        tokenizer = Tokenizer((1, 1))
        vocabulary, _ = Vocabulary.build(train.texts, tokenizer, min_df=min_df)
        hashes = tokenizer.scan(vocabulary.terms).hash
        order = np.argsort(hashes)

        def numbered(part: Dataset) -> tuple[np.ndarray, np.ndarray]:
            found = tokenizer.scan(part.texts)
            at = order[np.searchsorted(hashes[order], found.hash).clip(max=len(order) - 1)]
            row = np.repeat(np.arange(len(part)), np.diff(found.indptr))
            return _first(row, at, hashes[at] == found.hash, len(part), longest)

        classes = np.unique(train.labels)
        if len(classes) != 2:
            raise ValueError(f"data: expected two labels, got {classes.tolist()}")
        return cls(
            vocabulary.terms, numbered(train), numbered(test), train.labels == classes[1],
            test.labels == classes[1], blocks(train.labels, 0.1),
        )  # fmt: skip

    def thin(self, reviews: int) -> Ids:
        """`reviews` of each part, evenly spaced: as many of each label as before."""

        def some(part: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, Any]:
            rows = evenly(len(part[0]) - 1, reviews)
            sizes = np.diff(part[0])[rows]
            indptr = np.concatenate(([0], np.cumsum(sizes)))
            at = np.repeat(part[0][rows] - indptr[:-1], sizes) + np.arange(indptr[-1])
            return rows, (indptr, part[1][at])

        (a, train), (b, test) = some(self.train), some(self.test)
        return Ids(self.words, train, test, self.y_train[a], self.y_test[b], self.held[a])

    def save(self, path: str | Path) -> Path:
        small = np.uint16 if len(self.words) <= 1 << 16 else np.uint32
        arrays: dict[str, Any] = {
            "words": np.frombuffer("\n".join(self.words).encode(), np.uint8),
            "train_indptr": self.train[0].astype(np.uint32),
            "train_ids": self.train[1].astype(small),
            "test_indptr": self.test[0].astype(np.uint32),
            "test_ids": self.test[1].astype(small),
            "y_train": self.y_train,
            "y_test": self.y_test,
            "held": self.held,
        }
        return write_atomically(path, lambda stream: np.savez_compressed(stream, **arrays))

    @classmethod
    def load(cls, path: str | Path) -> Ids:
        with np.load(path, allow_pickle=False) as file:
            return cls(
                tuple(file["words"].tobytes().decode().split("\n")),
                (file["train_indptr"].astype(np.int64), file["train_ids"].astype(np.int64)),
                (file["test_indptr"].astype(np.int64), file["test_ids"].astype(np.int64)),
                file["y_train"], file["y_test"], file["held"],
            )  # fmt: skip


def evenly(n: int, some: int) -> np.ndarray:
    """`some` of n positions, evenly spaced; all of them for some = 0."""
    return np.unique(np.linspace(0, n - 1, min(some or n, n)).astype(np.intp))


def labelled(data: str, reviews: int, seed: int) -> tuple[Dataset, Dataset]:
    """(train, test): aclImdb's own parts, or blocks of a table, or made-up reviews for ""; thinned
    to `reviews` of each part (0: all)."""
    from ...classifier.datasets import imdb, read, synthetic

    if not data:
        return synthetic(reviews or 400, seed=seed), synthetic(reviews or 400, seed=seed + 1)
    name = Path(data).name.lower().removesuffix(".gz")
    if Path(data).is_dir() or name.endswith((".tar", ".tgz")):
        train, test = imdb(data, "train"), imdb(data, "test")
    else:
        train, test = read(data).split(0.3)
    return train.take(evenly(len(train), reviews)), test.take(evenly(len(test), reviews))


def numbered(data: str, reviews: int, seed: int) -> Ids:
    """The same as word numbers; `data` may also be the .npz that `Ids.save` writes."""
    if data.endswith(".npz"):
        ids = Ids.load(data)
        return ids.thin(reviews) if reviews else ids
    return Ids.of(*labelled(data, reviews, seed))


def _first(
    row: np.ndarray, ids: np.ndarray, keep: np.ndarray, n: int, most: int
) -> tuple[np.ndarray, np.ndarray]:
    """(indptr, ids) of the first `most` kept words of each row."""
    row, ids = row[keep], ids[keep]
    sizes = np.bincount(row, minlength=n)
    place = np.arange(len(row)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return np.concatenate(([0], np.cumsum(np.minimum(sizes, most)))), ids[place < most]


@final
@dataclass(frozen=True, eq=False)
class Reviews:
    """Distinct words `terms` (reviews, n) with multiplicities `count`, 0 for padding; labels `y`.

    `row` says which review of its part each one is: those without a known word are left out.
    """

    terms: np.ndarray
    count: np.ndarray
    y: np.ndarray
    row: np.ndarray

    def __len__(self) -> int:
        return len(self.y)

    @property
    def sizes(self) -> np.ndarray:
        """Number of distinct words of each review."""
        return (self.count > 0).sum(axis=1)

    @classmethod
    def of(cls, row: np.ndarray, ids: np.ndarray, y: np.ndarray, vocabulary: int) -> Reviews:
        """From one entry per word of a review."""
        key, times = np.unique(row * vocabulary + ids, return_counts=True)
        row, ids = key // vocabulary, key % vocabulary
        sizes = np.bincount(row, minlength=len(y))
        mask = np.arange(max(int(sizes.max(initial=1)), 1)) < sizes[:, None]
        terms = np.zeros(mask.shape, np.int32)
        count = np.zeros(mask.shape, np.float32)
        terms[mask], count[mask] = ids, times
        full = np.flatnonzero(sizes)
        return cls(terms[full], count[full], np.asarray(y)[full], full)

    def take(self, rows: np.ndarray) -> Reviews:
        width = int(self.sizes[rows].max(initial=1))
        return Reviews(
            self.terms[rows, :width], self.count[rows, :width], self.y[rows], self.row[rows]
        )


@final
@dataclass(frozen=True, eq=False)
class Task:
    """Reviews to train on, to stop on and to test on, over the words of the first alone."""

    words: tuple[str, ...]
    kept: Reviews
    held: Reviews
    test: Reviews

    @property
    def fingerprint(self) -> str:
        """Of the vocabulary: weights belong to no other."""
        return hashlib.sha256("\n".join(self.words).encode()).hexdigest()[:16]


def task(
    ids: Ids, *, tokens: int = 128, stop_words: bool = False, min_df: int = 2, most: int = 0
) -> Task:
    """The first `tokens` words of each review, with or without stop words.

    Only words of at least `min_df` of the reviews trained on are known, the `most` commonest if
    not 0: any other keeps its random place, may be long, and would then lead (a flaw of the
    published run).
    """
    stop = np.array([w in STOP_WORDS for w in ids.words])

    def cut(part: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        n = len(part[0]) - 1
        row = np.repeat(np.arange(n), np.diff(part[0]))
        keep = np.ones(len(row), bool) if stop_words else ~stop[part[1]]
        indptr, found = _first(row, part[1], keep, n, tokens)
        return np.repeat(np.arange(n), np.diff(indptr)), found

    row, found = cut(ids.train)
    mine = ~ids.held[row]
    df = np.bincount(np.unique(row[mine] * len(ids.words) + found[mine]) % len(ids.words))
    known = np.flatnonzero(df >= min_df)
    known = np.sort(known[np.argsort(-df[known], kind="stable")][: most or None])
    if not len(known):
        raise ValueError(f"data: no word occurs in {min_df} reviews; give more reviews")
    number = np.full(len(ids.words), -1)
    number[known] = np.arange(len(known))

    def packed(row: np.ndarray, found: np.ndarray, y: np.ndarray) -> Reviews:
        inside = number[found] >= 0
        return Reviews.of(row[inside], number[found[inside]], y, len(known))

    train = packed(row, found, ids.y_train)
    held = ids.held[train.row]
    return Task(
        tuple(ids.words[j] for j in known),
        train.take(np.flatnonzero(~held)),
        train.take(np.flatnonzero(held)),
        packed(*cut(ids.test), ids.y_test),
    )


def with_padding(reviews: Reviews, tokens: int, pad: int) -> Reviews:
    """The published flaw: `tokens` places per review, the empty ones filled by the word `pad`."""
    empty = np.maximum(tokens - reviews.count.sum(axis=1), 0.0).astype(np.float32)
    terms = np.concatenate((np.full((len(reviews), 1), pad, np.int32), reviews.terms), axis=1)
    count = np.concatenate((empty[:, None], reviews.count), axis=1)
    return replace(reviews, terms=terms, count=count)


# --- the model ----------------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class Variant:
    """Layers of the model. `attention`: "softmax" (at `temperature`), "hardmax", "uniform" (all
    words alike) or "random" (hardmax of frozen random tokens, the values are the learned ones).

    `hidden` > 0 adds a feed-forward map of that width after each layer; `norm` "sphere" or "layer"
    normalises tokens before the first and after each layer, "" does not.
    """

    attention: str = "softmax"
    temperature: float = 1e-3
    layers: int = 8
    hidden: int = 0
    norm: str = ""

    @property
    def hard(self) -> Variant:
        """The same layers with softmax at temperature 0."""
        return replace(self, attention="hardmax") if self.attention == "softmax" else self


def decisions(weights: Mapping[str, Any], terms: Any, count: Any, variant: Variant) -> Any:
    """Decision of each review (terms, count: (reviews, n) tensors), differentiable in `weights`."""
    z, weight = _carried(weights, terms, count, variant)
    mean = (weight[:, None, :] @ z)[:, 0]
    return mean @ weights["v"] + weights["b"]


def _carried(
    weights: Mapping[str, Any], terms: Any, count: Any, variant: Variant
) -> tuple[Any, Any]:
    """Tokens after the last layer (reviews, n, d), and the share of each in its review."""
    import torch

    place = torch.nn.functional.embedding
    z = _normed(place(terms, weights["embedding"]), variant.norm)
    weight = count / count.sum(dim=1, keepdim=True)
    alpha = torch.nn.functional.softplus(weights["step"])
    eta = alpha / (1 + alpha)
    frozen = place(terms, weights["frozen"]) if variant.attention == "random" else None
    for _ in range(variant.layers):
        z = torch.lerp(z, _pull(z, z if frozen is None else frozen, count, variant), eta)
        if variant.hidden:
            inner = torch.relu(z @ weights["inner"] + weights["inner_bias"])
            z = z + inner @ weights["outer"]
        z = _normed(z, variant.norm)
    return z, weight


def _pull(z: Any, q: Any, count: Any, variant: Variant) -> Any:
    """P z, the scores being those of the tokens q."""
    import torch

    if variant.attention == "uniform":
        return (count[:, None, :] @ z) / count.sum(dim=1)[:, None, None]
    if variant.attention == "softmax":
        score = torch.baddbmm(
            count.log()[:, None, :], q, q.transpose(1, 2), alpha=1 / variant.temperature
        )
        return torch.softmax(score, dim=-1) @ z
    score = (q @ q.transpose(1, 2)).masked_fill(count[:, None, :] == 0, -torch.inf)
    tied = (score == score.amax(dim=-1, keepdim=True)) * count[:, None, :]
    return (tied / tied.sum(dim=-1, keepdim=True)).detach() @ z


def _normed(z: Any, norm: str) -> Any:
    import torch

    if norm == "sphere":
        return torch.nn.functional.normalize(z, dim=-1)
    return torch.nn.functional.layer_norm(z, z.shape[-1:]) if norm == "layer" else z


# --- training -----------------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class Training:
    """Adam with the paper's values. Stops after `patience` epochs without a better held-out loss;
    alpha = softplus(step) > 0 starts at U(0, 1), embeddings at `spread` N(0, 1)."""

    epochs: int = 100
    rate: float = 1e-3
    batch: int = 64
    clip: float = 5.0
    patience: int = 10
    spread: float = 1.0
    seed: int = 0
    device: str = "cpu"


class Step(NamedTuple):
    """One epoch: `measured` on the sets watched, the weights of the best epoch so far, the end."""

    epoch: int
    measured: dict[str, float]
    best_epoch: int
    best: dict[str, Any]
    last: bool


def initial(words: int, dim: int, variant: Variant, seed: int, spread: float) -> dict[str, Any]:
    """Random weights; "frozen" ones are not trained."""
    import torch

    draw = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Any:
        return torch.randn(shape, generator=draw)

    alpha = float(torch.rand((), generator=draw).clamp(min=0.01))
    weights = {
        "embedding": spread * normal(words, dim),
        "step": torch.tensor(math.log(math.expm1(alpha))),
        "v": normal(dim) / math.sqrt(dim),
        "b": torch.zeros(()),
    }
    if variant.attention == "random":
        weights["frozen"] = normal(words, dim)
    if variant.hidden:
        weights["inner"] = normal(dim, variant.hidden) / math.sqrt(dim)
        weights["inner_bias"] = torch.zeros(variant.hidden)
        weights["outer"] = 0.1 * normal(variant.hidden, dim) / math.sqrt(variant.hidden)
    return weights


def train(
    task: Task,
    dim: int,
    variant: Variant,
    settings: Training,
    watch: Mapping[str, tuple[Reviews, Variant]],
    words: int = 0,
) -> Iterator[Step]:
    """Train on task.kept, epoch by epoch; stop on the loss on task.held.

    `watch` names what to measure after each epoch besides the held-out reviews: reviews and the
    layers to send them through. `words` is the size of the vocabulary, where it is larger than
    task.words (a padding word).
    """
    import torch

    weights = initial(words or len(task.words), dim, variant, settings.seed, settings.spread)
    weights = {k: w.to(settings.device) for k, w in weights.items()}
    learned = [w.requires_grad_() for k, w in weights.items() if k != "frozen"]
    adam = torch.optim.Adam(learned, lr=settings.rate)
    deck = _Deck.of(task.kept, settings.device)
    held = {"held": (_Deck.of(task.held, settings.device), variant)}
    watched = held | {k: (_Deck.of(r, settings.device), v) for k, (r, v) in watch.items()}
    best: dict[str, Any] = {}
    best_loss, best_epoch = math.inf, 0
    for epoch in range(1, settings.epochs + 1):
        draw = np.random.default_rng((settings.seed, epoch))
        total = torch.zeros((), device=settings.device)
        for rows, width in deck.batches(settings.batch, draw):
            terms, count, y = deck.cut(rows, width)
            loss = torch.nn.functional.binary_cross_entropy_with_logits(
                decisions(weights, terms, count, variant), y
            )
            adam.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(learned, settings.clip)
            adam.step()
            total += loss.detach() * len(rows)
        now = {k: w.detach() for k, w in weights.items()}
        measured = {"loss while training": float(total) / len(deck.y)}
        for name, (part, layers) in watched.items():
            loss_, right = _measure(now, part, layers)
            measured |= {f"{name} loss": loss_, f"{name} accuracy": right}
        measured["alpha"] = float(torch.nn.functional.softplus(now["step"]))
        if measured["held loss"] < best_loss:
            best_loss, best_epoch = measured["held loss"], epoch
            best = {k: w.clone() for k, w in now.items()}
        if not math.isfinite(measured["held loss"]):
            raise ValueError(f"training diverged at epoch {epoch}; choose a smaller rate")
        last = epoch == settings.epochs or epoch - best_epoch >= settings.patience
        yield Step(epoch, measured, best_epoch, best, last)
        if last:
            return


@contextmanager
def one_thread() -> Iterator[None]:
    """torch on one thread: these products are small, and threads that share a core wait."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def evaluate(weights: Mapping[str, Any], reviews: Reviews, variant: Variant) -> np.ndarray:
    """Decisions of many reviews, in their order, float64."""
    device = weights["embedding"].device
    return _decide(weights, _Deck.of(reviews, device), variant).double().cpu().numpy()


def final_tokens(
    weights: Mapping[str, Any], reviews: Reviews, variant: Variant
) -> tuple[np.ndarray, np.ndarray]:
    """Tokens after the last layer (reviews, n, d), and the share of each in its review."""
    import torch

    deck = _Deck.of(reviews, weights["embedding"].device)
    with torch.no_grad():
        z, weight = _carried(weights, deck.terms, deck.count, variant)
    return z.double().cpu().numpy(), weight.double().cpu().numpy()


@final
@dataclass(frozen=True, eq=False)
class _Deck:
    """Reviews on the device; batches of like length, so that little is padding."""

    terms: Any
    count: Any
    y: Any
    sizes: np.ndarray

    @classmethod
    def of(cls, reviews: Reviews, device: Any) -> _Deck:
        import torch

        terms, count, y = (
            torch.as_tensor(x, device=device)
            for x in (reviews.terms.astype(np.int64), reviews.count, reviews.y.astype(np.float32))
        )
        return cls(terms, count, y, reviews.sizes)

    def batches(
        self, batch: int, draw: np.random.Generator | None = None
    ) -> list[tuple[np.ndarray, int]]:
        """(rows, width): sorted by size within random groups of 16 batches, then shuffled."""
        n = len(self.sizes)
        order = np.arange(n) if draw is None else draw.permutation(n)
        group = n if draw is None else 16 * batch
        out = []
        for start in range(0, n, group):
            some = order[start : start + group]
            some = some[np.argsort(self.sizes[some], kind="stable")]
            for at in range(0, len(some), batch):
                rows = some[at : at + batch]
                width = -(-int(self.sizes[rows[-1]]) // 8) * 8
                out.append((rows, min(width, self.terms.shape[1])))
        if draw is not None:
            out = [out[i] for i in draw.permutation(len(out))]
        return out

    def cut(self, rows: np.ndarray, width: int) -> tuple[Any, Any, Any]:
        import torch

        at = torch.as_tensor(rows, device=self.terms.device)
        return self.terms[at, :width], self.count[at, :width], self.y[at]


def _decide(weights: Mapping[str, Any], deck: _Deck, variant: Variant) -> Any:
    import torch

    out = torch.empty_like(deck.y)
    wide = deck.terms.device.type != "cpu"
    with torch.no_grad():
        for rows, width in deck.batches(1024 if wide else 128):
            terms, count, _ = deck.cut(rows, width)
            at = torch.as_tensor(rows, device=out.device)
            out[at] = decisions(weights, terms, count, variant)
    return out


def _measure(weights: Mapping[str, Any], deck: _Deck, variant: Variant) -> tuple[float, float]:
    """Mean loss and accuracy over all reviews (not over batches)."""
    import torch

    decision = _decide(weights, deck, variant)
    loss = torch.nn.functional.binary_cross_entropy_with_logits(decision, deck.y)
    return float(loss), float(((decision > 0) == (deck.y > 0.5)).double().mean())


# --- leaders ------------------------------------------------------------------------------------


@final
@dataclass(frozen=True, eq=False)
class Led:
    """Hardmax layers in float64 with proved decisions. Per review: `decision`, number of leaders,
    those leading from layer 0, share of the mean on leaders; `born` (reviews, n) per word."""

    decision: np.ndarray
    leaders: np.ndarray
    initial: np.ndarray
    on_leaders: np.ndarray
    born: np.ndarray


def led(
    embedding: np.ndarray, v: np.ndarray, b: float, alpha: float, reviews: Reviews, layers: int = 8
) -> Led:
    """Send reviews through the hardmax layers of `simulate`; a leader has C_i = {i} at some layer.

    Not read off float32 states at the last layer: there a follower rounds onto its leader and
    looks like one.
    """
    from ...dynamics import PureAttention
    from ...simulation.loop import simulate

    dynamics = PureAttention(alpha=alpha)
    rho = 1.0 / (1.0 + alpha)
    embedding = np.asarray(embedding, np.float64)
    decision, on_leaders = np.empty(len(reviews)), np.empty(len(reviews))
    born = np.full(reviews.terms.shape, -1, dtype=np.intp)
    order = np.argsort(reviews.sizes, kind="stable")
    for start in range(0, len(order), 256):
        rows = order[start : start + 256]
        some = reviews.take(rows)
        mask = some.count > 0
        run = simulate(
            dynamics, embedding[some.terms], layers=layers, mask=mask, save_every=max(layers, 1),
            throw=False,
        )  # fmt: skip
        history = run.history
        assert history is not None
        weight = some.count / some.count.sum(axis=1, keepdims=True)
        decision[rows] = np.einsum("bn,bnd->bd", weight, run.values[-1]) @ v + b
        settled = history.settled_at
        elsewhere = np.where(settled >= 0, rho ** (layers - np.maximum(settled, 0.0)), 1.0)
        elsewhere = np.where(history.born >= 0, 0.0, elsewhere)
        on_leaders[rows] = 1.0 - (weight * elsewhere).sum(axis=1)
        born[rows, : mask.shape[1]] = np.where(mask, history.born, -1)
    leads = born >= 0
    return Led(decision, leads.sum(axis=1), (born == 0).sum(axis=1), on_leaders, born)
