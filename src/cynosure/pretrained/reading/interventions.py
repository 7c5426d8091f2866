"""Activations of a real model by name: read, ablated, patched; its tokens read as words.

L3        the tokens that enter block 3          L3.attention   what W_O gives, all heads
L3H1      what head 1 gives to W_O               L3H1@4         the same of token 4 alone
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import attrgetter
from typing import Any

import numpy as np

from ..._display import Rows
from .traces import Trace
from .transformer import Transformer

_NAME = re.compile(r"L(\d+)(?:H(\d+)|(\.attention))?(?:@(\d+))?")
_Change = Callable[[Any], Any]


def activations(transformer: Transformer, tokens: Any, names: Iterable[str]) -> dict[str, Any]:
    """The activations of these names for one text, as arrays (n, width), or (width,) with @."""
    out: dict[str, np.ndarray] = {}

    def keep(name: str) -> _Change:
        def change(x: Any) -> Any:
            out[name] = x.detach().float().cpu().numpy()
            return x

        return change

    with intervene(transformer, {name: keep(name) for name in names}):
        transformer.trace(tokens)
    return out


@contextlib.contextmanager
def intervene(transformer: Transformer, changes: Mapping[str, Any]) -> Iterator[None]:
    """Context manager: the model runs with these activations changed: `trace`, `survey`, any call.

    A change is a number (0 ablates), an array of the activation's shape (patching: that of
    `activations` of another text), or a function of the tensor that returns one. Several names
    are changed in one run, each where it is computed. Compare with an ablation that should not
    matter, a random head or an array of the same size.

    Examples
    --------
    >>> donor = activations(model, "A good film.", ["L3H1"])            # doctest: +SKIP
    >>> with intervene(model, {"L3H1": donor["L3H1"], "L0H2@1": 0}):    # doctest: +SKIP
    ...     trace = model.trace("A dull film.")
    """
    blocks = list(transformer.adapter.blocks(transformer.model))
    calls: dict[int, int] = {}  # of each module: layers may share theirs
    with contextlib.ExitStack() as hooks:
        for module in dict.fromkeys(blocks):

            def count(block: Any, args: Any) -> None:
                calls[id(block)] = calls.get(id(block), -1) + 1

            hooks.callback(module.register_forward_pre_hook(count).remove)
        for name, value in changes.items():
            layer, head, attention, at = _parsed(name, transformer)
            block = blocks[layer]
            turn = [i for i, other in enumerate(blocks) if other is block].index(layer)

            def change(
                x: Any, width: int = 1, *, block: Any = block, turn: int = turn, head: Any = head,
                at: Any = at, value: Any = value, name: str = name,
            ) -> Any:  # fmt: skip
                repeats = len([other for other in blocks if other is block])
                if calls.get(id(block), 0) % repeats != turn:
                    return x
                y = x.clone()
                part = y[0] if head is None else y[0].view(len(y[0]), width, -1)[:, head]
                part = part if at is None else part[at]
                part[...] = _new(value, part, name)
                return y

            hooks.callback(_placed(transformer, block, head, attention, change).remove)
        yield


def _placed(
    transformer: Transformer, block: Any, head: Any, attention: Any, change: Callable[..., Any]
) -> Any:
    """The hook that makes the change where the activation is."""
    output = attrgetter(transformer.adapter.output)(block)
    width = transformer.width
    if head is not None:
        return output.register_forward_pre_hook(lambda _, args: (change(args[0], width), *args[1:]))
    if attention is not None:
        return output.register_forward_hook(lambda _, args, out: change(out))

    def before(_: Any, args: Any, kwargs: Any) -> Any:
        if args:
            return (change(args[0]), *args[1:]), kwargs
        return args, {**kwargs, "hidden_states": change(kwargs["hidden_states"])}

    return block.register_forward_pre_hook(before, with_kwargs=True)


def _parsed(name: str, transformer: Transformer) -> tuple[int, int | None, str | None, int | None]:
    found = _NAME.fullmatch(name)
    if not found:
        raise ValueError(f"{name!r}: expected L3, L3H1 or L3.attention, with @4 for token 4 alone")
    layer, head, attention, at = found.groups()
    if int(layer) >= transformer.depth or (head and int(head) >= transformer.width):
        raise ValueError(
            f"{name}: {transformer.name} has layers 0 to {transformer.depth - 1} "
            f"with heads 0 to {transformer.width - 1}"
        )
    return int(layer), int(head) if head else None, attention, int(at) if at else None


def _new(value: Any, part: Any, name: str) -> Any:
    import torch

    if callable(value):
        return value(part)
    given = torch.as_tensor(value, dtype=part.dtype, device=part.device)
    if given.ndim and given.shape != part.shape:
        raise ValueError(f"{name}: expected an array {tuple(part.shape)}, got {tuple(given.shape)}")
    return given


def find(trace: Trace, word: str) -> list[int]:
    """The tokens of a trace that read `word`, marks of word boundaries and case aside.

    A word of several pieces is found by its first: `trace.by_word()` has one token per word.
    """
    if trace.words is None:
        raise ValueError("find: this trace has no text")

    def plain(piece: str) -> str:
        return piece.replace("##", "").strip("Ġ▁Ċ \n").casefold()

    wanted = plain(word)
    exact = [i for i, piece in enumerate(trace.words) if plain(piece) == wanted]
    if exact or trace.groups is None or trace.names is None:
        return exact
    chosen = {g for g, name in enumerate(trace.names) if plain(name) == wanted}
    return [trace.groups.index(g) for g in sorted(chosen) if g in trace.groups]


def logit_lens(
    transformer: Transformer, trace: Trace, unembedding: Any = None, top: int = 5
) -> list[dict[str, Any]]:
    """One row per layer and token: the words that the model would predict from this layer.

    softmax of W_U norm(z), with the model's own final norm where it has one. W_U is
    `unembedding` (vocabulary, d), or the embedding where the model says that it shares it.
    """
    import torch

    model = transformer.model
    if unembedding is None:
        if not getattr(model.config, "tie_word_embeddings", False):
            raise ValueError(
                f"unembedding: that of {transformer.name} is its own, and no part of the bare "
                "model; pass that of the whole one, full.get_output_embeddings().weight"
            )
        unembedding = model.get_input_embeddings().weight
    norm = next((m for k in _FINAL if (m := getattr(model, k, None)) is not None), None)
    W = torch.as_tensor(unembedding).detach().to(model.device, model.dtype)
    rows = []
    with torch.no_grad():
        for k, state in enumerate(trace.z):
            z = torch.as_tensor(state, dtype=model.dtype, device=model.device)
            if W.shape[1] != z.shape[1]:
                shape = tuple(W.shape)
                raise ValueError(f"unembedding: expected (vocabulary, {z.shape[1]}), got {shape}")
            p = ((z if norm is None else norm(z)) @ W.T).float().softmax(dim=-1)
            best = p.topk(min(top, p.shape[1]))
            for i, (share, ids) in enumerate(zip(best.values.tolist(), best.indices.tolist())):
                said = ids if transformer.tokenizer is None else _words(transformer, ids)
                word = None if trace.words is None else trace.words[i]
                place = {"layer": k, "token": i, "word": word}
                best_ = {"says": said[0], "probability": share[0], "top": list(zip(said, share))}
                rows.append(place | best_)
    return Rows(rows)


_FINAL = ("norm", "ln_f", "final_layer_norm", "final_layernorm", "final_norm")


def _words(transformer: Transformer, ids: list[int]) -> list[str]:
    return [str(word) for word in transformer.tokenizer.convert_ids_to_tokens(ids)]  # type: ignore[union-attr]
