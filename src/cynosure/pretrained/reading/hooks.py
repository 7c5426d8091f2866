"""Hooks on the modules of a real model: its calls are recorded or altered while they are on."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, final

from ..families import Adapter


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
def double(model: Any, adapter: Adapter) -> Iterator[None]:
    """A model in float64 is float64 throughout while this lasts: also where the library asks for
    float32 (softmax, norms, rotary angles), and in the family's `tables`. Experts run one by one:
    the grouped product has no float64."""
    import torch
    from torch.overrides import TorchFunctionMode

    def wide(x: Any) -> Any:
        return torch.float64 if x is torch.float32 else x

    @final
    class Wide(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None):  # type: ignore[no-untyped-def]
            func = torch.Tensor.double if func is torch.Tensor.float else func
            named = {name: wide(x) for name, x in (kwargs or {}).items()}
            return func(*(wide(x) for x in args), **named)

    if model.dtype != torch.float64:
        yield
        return
    tables = [table for block in adapter.blocks(model) for table in adapter.tables(block)]
    rounded = [getattr(module, name) for module, name, _ in tables]
    experts = getattr(model.config, "_experts_implementation", None)
    for module, name, exact in tables:
        setattr(module, name, exact)
    if experts is not None:
        model.set_experts_implementation("eager")
    try:
        with Wide():
            yield
    finally:
        if experts is not None:
            model.set_experts_implementation(experts)
        for (module, name, _), before in zip(tables, rounded, strict=True):
            setattr(module, name, before)


@contextlib.contextmanager
def quiet(model: Any, adapter: Adapter, attention: str = "eager") -> Iterator[None]:
    """Eager attention, no dropout, no gradients; afterwards the model is as it was before."""
    import torch

    implementation = model.config._attn_implementation
    training = [module for module in model.modules() if module.training]
    _choose(model, attention)
    model.eval()
    try:
        with torch.no_grad(), double(model, adapter):
            yield
    finally:
        for module in training:
            module.training = True
        _choose(model, implementation)


def _choose(model: Any, attention: str) -> None:
    """The attention function by its name; a family with its own code (Falcon) asks its config."""
    if model.config._attn_implementation == attention:
        return
    if model._can_set_attn_implementation():
        model.set_attn_implementation(attention)
    else:
        model.config._attn_implementation = attention


@contextlib.contextmanager
def recording(model: Any, adapter: Adapter, name: str, *, P: bool = True) -> Iterator[list[Call]]:
    """Every call of a block made inside is appended to the list; with its P, unless said."""
    calls: list[Call] = []
    attended: list[tuple[Any, ...]] = []

    def attention(_: Any, args: Any, kwargs: Any, out: Any) -> None:
        attended[:] = [(*_apart(args, kwargs), out[1] if P else None)]

    def block(_: Any, args: Any, kwargs: Any, out: Any) -> None:
        if not attended or (P and attended[0][-1] is None):
            raise RuntimeError(
                f"{name}: the model returned no attention weights; load it with "
                "attn_implementation='eager'"
            )
        seen, others, weights = attended.pop()
        z, rest = _apart(args, kwargs)
        calls.append(Call(z, first(out), seen, weights, rest, others))

    with contextlib.ExitStack() as hooks:
        for module in dict.fromkeys(adapter.blocks(model)):
            inside = attrgetter(adapter.attention)(module)
            for watched, see in ((inside, attention), (module, block)):
                hooks.callback(watched.register_forward_hook(see, with_kwargs=True).remove)
        yield calls


def _apart(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, tuple[tuple, dict]]:
    """The tokens a module was called with, and the other arguments."""
    if args:
        return args[0], (args[1:], kwargs)
    rest = {name: x for name, x in kwargs.items() if name != "hidden_states"}
    return kwargs["hidden_states"], ((), rest)


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
    """The block, changed while this lasts: heads not in `only` are set to 0 before W_O (None: all
    stay on); without `norm` every norm returns its input; `frozen` keeps the P of the first call.
    """
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

            hooks.callback(output.register_forward_pre_hook(silence).remove)
        for name, module in block.named_modules():
            of_scores = name.endswith(("q_norm", "k_norm"))
            if not norm and type(module).__name__.endswith("Norm") and not of_scores:
                skipped = module.register_forward_hook(lambda _, args, __: args[0])
                hooks.callback(skipped.remove)
        yield


def _freeze(hooks: contextlib.ExitStack, block: Any, adapter: Adapter, heads: int) -> None:
    """From the second call on, W_O gets P v with the P of the first call and the current v."""
    attention, output = (attrgetter(path)(block) for path in (adapter.attention, adapter.output))
    weight, bias = adapter.weights(block)[2]
    held: list[Any] = []
    seen: list[Any] = []

    def look(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        seen[:] = [_apart(args, kwargs)[0]]

    def remember(_: Any, args: tuple[Any, ...], out: Any) -> None:
        if not held:
            held.append(out[1])

    def hold(_: Any, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
        if not held:
            return None
        v = seen[0] @ weight.T + (0 if bias is None else bias)
        own = v.view(*v.shape[:-1], -1, args[0].shape[-1] // heads)  # groups of heads may share
        by_head = own.repeat_interleave(heads // own.shape[-2], dim=-2).transpose(1, 2)
        return ((held[0] @ by_head).transpose(1, 2).reshape(args[0].shape), *args[1:])

    hooks.callback(attention.register_forward_pre_hook(look, with_kwargs=True).remove)
    hooks.callback(attention.register_forward_hook(remember).remove)
    hooks.callback(output.register_forward_pre_hook(hold).remove)
