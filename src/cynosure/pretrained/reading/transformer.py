"""Transformer: a real model, its heads, its trajectories, and its layers run again and again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Literal, final

import numpy as np

from ..._display import Shown
from ..._progress import Progress
from ..._shapes import Float
from ..._types import Array, as_tokens, is_torch
from ...simulation.cycles import Recent
from ...simulation.status import Status, turning
from ...simulation.trajectory import Trajectory
from ..families import Adapter
from ..heads.head import Head
from ..heads.splitting import as_array, heads_of
from ..loading.memory import require, told
from .hooks import Call, altered, double, first, quiet, recording
from .sentences import Sentence, of_ids, of_picture, of_text
from .surveys import Survey, survey
from .traces import Trace

_CHUNKED = "take fewer tokens or layers, or survey(), which holds no P"


@final
@dataclass(frozen=True, eq=False)
class Transformer(Shown):
    """A loaded model, read as an attention dynamics; make one with `load_transformer`.

    Layers count from 0 and layer k takes the tokens z^k to z^{k+1}; z^0 are the embedded tokens.
    """

    model: Any  # the bare model (BertModel, GPT2Model, ...) without a task on top
    tokenizer: Any | None  # what reads a text, or a picture, for the model
    adapter: Adapter
    name: str

    def __repr__(self) -> str:
        kind = self.model.config.model_type
        return f"Transformer({self.name!r}, {kind}, {self.depth} layers of {self.width} heads)"

    def _table(self) -> list[tuple[str, object]]:
        config, mask = self.model.config, "causal" if self.causal else "no mask"
        return [
            ("model", f"{self.name}, {config.model_type}, {mask}"),
            ("layers", f"{self.depth} of {self.width} heads, d = {config.hidden_size}"),
            ("longest input", f"{self.max_tokens} tokens"),
            ("numbers", f"{sum(p.numel() for p in self.model.parameters()):,} {self.model.dtype}"),
        ]

    @property
    def depth(self) -> int:
        """Number of layers."""
        return len(self.adapter.blocks(self.model))

    @property
    def width(self) -> int:
        """Number of heads per layer."""
        return int(self.model.config.num_attention_heads)

    @property
    def causal(self) -> bool:
        """True when token i looks only at j <= i (GPT-2, Llama, or a BERT made a decoder)."""
        return self.adapter.causal(self.model.config)

    @property
    def distinct_layers(self) -> tuple[int, ...]:
        """The first layer of each set of weights: (0,) when all layers share theirs."""
        blocks = self.adapter.blocks(self.model)
        return tuple(dict.fromkeys(map(blocks.index, blocks)))

    def original(self, layer: int) -> int:
        """The first layer with the weights of this one; the layer itself where none are shared."""
        return self.adapter.blocks(self.model).index(self._block(layer))

    @property
    def max_tokens(self) -> int:
        """The longest input, in tokens."""
        positions = self.adapter.positions(self.model.config)
        stated = getattr(self.tokenizer, "model_max_length", positions)
        return int(min(positions, stated))

    # --- weights ---

    def heads(self, layer: int) -> tuple[Head, ...]:
        """The heads of one layer, their weights as float64.

        Trap: biases matter; `Head.lifted` has A and V with them.
        """
        block = self._block(layer)
        with double(self.model, self.adapter):
            scoring = self.adapter.scoring(self.model, layer)
            weights, scale = self.adapter.weights(block), float(self.adapter.scaling(block))
        return heads_of(weights, scoring, scale, self.width, layer, self.causal)

    def output_bias(self, layer: int) -> Float[np.ndarray, "d"]:
        """b_O: the layer's attention adds sum_h head_h(x) + b_O to its tokens."""
        weight, bias = self.adapter.weights(self._block(layer))[3]
        return np.zeros(len(weight)) if bias is None else as_array(bias)

    def _block(self, layer: int) -> Any:
        if not 0 <= layer < self.depth:
            raise ValueError(f"layer: {self.name} has layers 0 to {self.depth - 1}, got {layer}")
        return self.adapter.blocks(self.model)[layer]

    # --- trajectories ---

    def trace(self, tokens: Any, layers: int | None = None, *, words: bool = False) -> Trace:
        """The tokens of a text by layer, with the attention of every head.

        `tokens` is a text, a sequence of token ids, or an array (n, d) of tokens that enter layer
        0 as they are; for a model that reads pictures, a PNG or JPEG file, a picture of Pillow, or
        an array (channels, height, width) as its own preprocessing makes it. Only the first
        `layers` layers are returned; a model that shares one set of weights, such as ALBERT, may
        also be run for more layers than it has. `words` groups sub-words, see `Trace.by_word`.
        """
        calls, text = self.pass_on(tokens, layers)
        return self.traced(calls, text, words=words)

    def pass_on(
        self, tokens: Any, layers: int | None = None, *, attention: str = "eager", least: int = 0
    ) -> tuple[list[Call], Sentence]:
        """The calls of the first `layers` layers, at least `least`, as in `trace`."""
        layers = self.depth if layers is None else layers
        if layers < 1:
            raise ValueError(f"layers: expected at least 1, got {layers}")
        if layers > self.depth and len(self.distinct_layers) > 1:
            raise ValueError(
                f"layers: {self.name} has {self.depth} layers with their own weights, got {layers};"
                " only a weight-shared model can be run deeper. Use iterate(tokens, layer, n)"
            )
        text = self._read(tokens)
        n = len(text.pieces or text.ids) or len(tokens)
        size = self.model.dtype.itemsize * layers * n
        needed = 2 * size * (self.width * n + 2 * int(self.model.config.hidden_size))
        require(needed, f"trace: P of {layers} layers, {self.width} heads, {n} tokens", _CHUNKED)
        with quiet(self.model, self.adapter, attention), told(_CHUNKED):
            return self._record(tokens, text, max(layers, least)), text

    def traced(self, calls: Sequence[Call], text: Sentence, *, words: bool = False) -> Trace:
        """The trace that these calls are."""
        z = _stack([call.z for call in calls] + [calls[-1].out])
        kind = self.model.config.model_type
        status = Status("done", f"{len(calls)} layers of {kind} {self.name}.", "", text.notes)
        trajectory = Trajectory(z, np.arange(len(z)), status, words=text.pieces)
        P, seen = _stack([call.P for call in calls]), _stack([call.seen for call in calls])
        shown = None if text.look is None else text.look.shown
        trace = Trace(trajectory, P, seen, text.groups, text.names, text.grid, shown)
        return trace.by_word() if words else trace

    def survey(self, tokens: Any, *, progress: Progress = None) -> Survey:
        """Leaders, sinks, entropy, clusters, rank of a text by layer; its P is never held whole.

        `tokens` as in `trace`. For long texts: rows of P go by some at a time.
        """
        return survey(self, tokens, progress=progress)

    def iterate(
        self,
        tokens: Any,
        layer: int,
        n: int,
        *,
        parts: Literal["block", "attention", "head"] = "block",
        head: int | Sequence[int] | None = None,
        norm: bool = True,
        frozen: bool = False,
        save_every: int = 1,
    ) -> Trajectory:
        """Run the modules of one layer n times over, each time on their own output.

        parts = "block" is the whole layer, "attention" the layer without its feed-forward part
        (z <- norm(z + heads(z)), or z + heads(norm(z)) in GPT-2), "head" the same with one head.
        `head` is the head, or heads, that are not silenced; norm=False makes every norm of the
        layer the identity; frozen=True uses the attention P of the first call in all of them:
        without norm and feed-forward z <- z + sum_h P_h z V_hᵀ + b is then affine, the master
        equation.
        `tokens` as in `trace`: an array (n, d) starts as it is, a text where the model has it when
        it enters this layer; an array (b, n, d) is b starts at once, each on its own.

        A run that ends in a cycle says so in its status, with the period, whatever was saved.

        Trap: norm and output bias act even when heads are silent, and may decide the outcome alone.
        head=() silences all heads: compare every result about a head with that control.
        """
        if parts not in ("block", "attention", "head"):
            raise ValueError(f"parts: expected 'block', 'attention' or 'head', got {parts!r}")
        if parts == "head" and head is None:
            raise ValueError(f"head: parts='head' needs a head, 0 to {self.width - 1}")
        only = None if head is None else (head,) if isinstance(head, int) else tuple(head)
        if only and not all(0 <= h < self.width for h in only):
            raise ValueError(f"head: {self.name} has heads 0 to {self.width - 1}, got {head}")
        if n < 1 or save_every < 1:
            raise ValueError(f"n and save_every: expected at least 1, got {n} and {save_every}")
        block = self._block(layer)
        many = self.adapter.picture is None and getattr(tokens, "ndim", 0) == 3
        text = Sentence() if many else self._read(tokens)
        with quiet(self.model, self.adapter):
            if many or is_tokens(tokens):
                z = self._tensor(tokens)
                record = self._rehearse(z.shape[1], many=len(z))[layer]
            else:
                record = self._record(tokens, text, layer + 1)[layer]
                z = record.z
            step = self._step(block, record, parts)
            with altered(block, self.adapter, self.width, only=only, norm=norm, frozen=frozen):
                states, t, status = _repeat(step, z, n, save_every)
        return Trajectory(states if many else states[:, 0], t, status, words=text.pieces)

    # --- hooking the model ---

    def _step(self, block: Any, record: Call, parts: str) -> Callable[[Any], Any]:
        if parts == "block":
            return lambda z: first(block(z, *record.block[0], **record.block[1]))
        attention = attrgetter(self.adapter.attention)(block)
        args, kwargs = record.attention

        def attend(x: Any, *given: Any) -> Any:
            return first(attention(x, *given, *args[len(given) :], **kwargs))

        return lambda z: self.adapter.sublayer(block, attend, z)

    def _forward(self, **inputs: Any) -> None:
        if self.causal:
            inputs["use_cache"] = False  # a cache would make repeated calls depend on each other
        self.model(**inputs)

    def _record(self, tokens: Any, text: Sentence, layers: int) -> list[Call]:
        if is_tokens(tokens):
            z, rehearsed, done = self._tensor(tokens), self._rehearse(np.shape(tokens)[0]), 0
        else:
            with recording(self.model, self.adapter, self.name) as rehearsed:
                self._forward(**self._inputs(text))
            z, done = rehearsed[-1].out, len(rehearsed)
        blocks = self.adapter.blocks(self.model)
        with recording(self.model, self.adapter, self.name) as calls:
            for k in range(done, layers):
                args, kwargs = rehearsed[min(k, self.depth - 1)].block
                z = first(blocks[min(k, self.depth - 1)](z, *args, **kwargs))
        return [*rehearsed[:done], *calls][:layers]

    def _rehearse(self, n: int, *, P: bool = True, many: int = 1) -> list[Call]:
        """The model run on n blank tokens, for the masks and other arguments of each block; on
        `many` such texts at once."""
        import torch

        if n > self.max_tokens:
            raise ValueError(f"tokens: {self.name} takes at most {self.max_tokens}, got {n}")
        like = {"dtype": self.model.dtype, "device": self.model.device}
        if self.adapter.picture is None:
            width = self.model.get_input_embeddings().weight.shape[1]
            blank = {"inputs_embeds": torch.zeros(many, n, width, **like)}
        else:  # every picture has the same number of patches; n of them may start layer 0
            blank = {"pixel_values": torch.zeros(1, *self._pixels, **like)}
        with recording(self.model, self.adapter, self.name, P=P) as calls:
            self._forward(**blank)
        return calls

    @property
    def _pixels(self) -> tuple[int, ...]:
        """Channels, height and width of a picture."""
        size, config = self.model.config.image_size, self.model.config
        return (config.num_channels, *(size if isinstance(size, tuple | list) else (size, size)))

    def _inputs(self, text: Sentence) -> dict[str, Any]:
        """What the model is called with."""
        import torch

        if text.look is not None:
            like = {"dtype": self.model.dtype, "device": self.model.device}
            return {"pixel_values": torch.as_tensor(text.look.pixels, **like)[None]}
        ids = torch.tensor([text.ids], device=self.model.device)
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}

    def _tensor(self, tokens: Array) -> Any:
        import torch

        z = as_tokens(tokens, "tokens", ndim=3 if getattr(tokens, "ndim", 2) == 3 else 2)
        d = int(self.model.config.hidden_size)
        if z.shape[-1] != d:
            raise ValueError(f"tokens: {self.name} acts on tokens with d = {d}, got {z.shape}")
        state = torch.as_tensor(z, dtype=self.model.dtype, device=self.model.device)
        return state.reshape(-1, *state.shape[-2:])

    def _read(self, tokens: Any) -> Sentence:
        if is_tokens(tokens):
            return Sentence()
        if self.adapter.picture is not None:
            grid = self.adapter.picture(self.model.config)
            return of_picture(tokens, self.tokenizer, self._pixels, grid)
        vocabulary = int(self.model.get_input_embeddings().weight.shape[0])
        if isinstance(tokens, str):
            return of_text(tokens, self.tokenizer, vocabulary, self.max_tokens)
        return of_ids(tokens, self.tokenizer, vocabulary, self.max_tokens)


def _repeat(
    step: Callable[[Any], Any], z: Any, n: int, every: int
) -> tuple[np.ndarray, np.ndarray, Status]:
    """z, step(z), step(step(z)), ...; stops before the first state that is not finite."""
    states, t, recent = [z], [0], Recent(z)
    for k in range(1, n + 1):
        z = step(z)
        recent.add(z)
        if not bool(z.isfinite().all()):
            advice = "Keep the norms (norm=True), or use fewer layers."
            message = f"tokens overflow at layer {k}; the run stops at layer {k - 1}."
            return _whole(states), np.array(t), Status("overflow", message, advice)
        if k % every == 0 or k == n:
            states.append(z)
            t.append(k)
    done = turning(recent.cycle(states)) or Status("done", f"the layer was run {n} times.")
    return _whole(states), np.array(t), done


# --- arrays ---


def is_tokens(tokens: Any) -> bool:
    """An array (n, d) of floats, as opposed to a text or a sequence of ids."""
    if isinstance(tokens, str):
        return False
    if is_torch(tokens):
        return tokens.is_floating_point()
    try:
        array = np.asarray(tokens)
    except ValueError:
        return False
    return array.dtype.kind == "f" and array.ndim == 2


def _whole(states: Sequence[Any]) -> np.ndarray:
    """States (b, n, d) of a run as one array (layers, b, n, d)."""
    return _stack(states).reshape(len(states), *states[0].shape)


def _stack(tensors: Sequence[Any]) -> np.ndarray:
    """Batches of one sentence as one NumPy array; half precision becomes float32."""
    import torch

    joint = torch.cat(list(tensors)).cpu()
    return (joint if joint.dtype == torch.float64 else joint.float()).numpy()
