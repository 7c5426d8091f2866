"""Hooks on the modules of a real model: its calls are recorded or altered while they are on."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, final

from .families import Adapter

__all__ = ["Call", "altered", "first", "quiet", "recording"]


@final
@dataclass(frozen=True)
class Call:
    """One call of a block, as recorded: tokens in and out, attention, and the other arguments."""

    z: Any
    out: Any
    seen: Any
    P: Any
    block: tuple[tuple[Any, ...], dict[str, Any]]
    attention: tuple[tuple[Any, ...], dict[str, Any]]


def first(out: Any) -> Any:
    """What a block returns: a tensor, or a tuple that begins with it."""
    return out[0] if isinstance(out, tuple) else out


@contextlib.contextmanager
def quiet(model: Any) -> Iterator[None]:
    """Eager attention, no dropout, no gradients; afterwards the model is as it was before."""
    import torch

    implementation = model.config._attn_implementation
    training = [module for module in model.modules() if module.training]
    if implementation != "eager":
        model.set_attn_implementation("eager")
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module in training:
            module.training = True
        if implementation != "eager":
            model.set_attn_implementation(implementation)


@contextlib.contextmanager
def recording(model: Any, adapter: Adapter, name: str) -> Iterator[list[Call]]:
    """Every call of a block made inside is appended to the list."""
    calls: list[Call] = []
    attended: list[tuple[Any, ...]] = []

    def attention(_: Any, args: Any, kwargs: Any, out: Any) -> None:
        attended[:] = [(args, kwargs, out[1])]

    def block(_: Any, args: Any, kwargs: Any, out: Any) -> None:
        if not attended or attended[0][2] is None:
            raise RuntimeError(
                f"{name}: the model returned no attention weights; load it with "
                "attn_implementation='eager'"
            )
        (seen, *rest), attention_kwargs, P = attended.pop()
        calls.append(
            Call(args[0], first(out), seen, P, (args[1:], kwargs), (tuple(rest), attention_kwargs))
        )

    with contextlib.ExitStack() as hooks:
        for module in dict.fromkeys(adapter.blocks(model)):
            inside = attrgetter(adapter.attention)(module)
            _hook(hooks, inside.register_forward_hook(attention, with_kwargs=True))
            _hook(hooks, module.register_forward_hook(block, with_kwargs=True))
        yield calls


@contextlib.contextmanager
def altered(
    block: Any,
    adapter: Adapter,
    heads: int,
    *,
    only: tuple[int, ...] | None,
    norm: bool,
    frozen: bool,
) -> Iterator[None]:
    """The block, changed while the context lasts.

    only: the heads that stay on, the others are set to 0 before W_O (None: all stay on).
    norm=False: every norm returns its input. frozen=True: the attention P of the first call is used
    in all later ones.
    """
    from torch import nn

    output = attrgetter(adapter.output)(block)
    with contextlib.ExitStack() as hooks:
        if frozen:
            _freeze(hooks, block, adapter, heads)
        if only is not None:
            silent = [i for i in range(heads) if i not in only]

            def silence(_: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
                x = args[0].clone()
                x.view(*x.shape[:-1], heads, -1)[..., silent, :] = 0
                return (x, *args[1:])

            _hook(hooks, output.register_forward_pre_hook(silence))
        if not norm:
            for module in block.modules():
                if isinstance(module, nn.LayerNorm):
                    _hook(hooks, module.register_forward_hook(lambda _, args, __: args[0]))
        yield


def _freeze(hooks: contextlib.ExitStack, block: Any, adapter: Adapter, heads: int) -> None:
    """From the second call on, W_O gets P v with the P of the first call and the current v."""
    attention, output = (attrgetter(path)(block) for path in (adapter.attention, adapter.output))
    weight, bias = adapter.qkvo(block)[2]
    held: list[Any] = []
    seen: list[Any] = []

    def look(_: Any, args: tuple[Any, ...]) -> None:
        seen[:] = [args[0]]

    def remember(_: Any, args: tuple[Any, ...], out: Any) -> None:
        if not held:
            held.append(out[1])

    def hold(_: Any, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
        if not held:
            return None
        v = seen[0] @ weight.T + bias
        by_head = v.view(*v.shape[:-1], heads, -1).transpose(1, 2)
        return ((held[0] @ by_head).transpose(1, 2).reshape(args[0].shape), *args[1:])

    _hook(hooks, attention.register_forward_pre_hook(look))
    _hook(hooks, attention.register_forward_hook(remember))
    _hook(hooks, output.register_forward_pre_hook(hold))


def _hook(hooks: contextlib.ExitStack, handle: Any) -> None:
    hooks.callback(handle.remove)
