"""Plain functions as dynamics: f(z, k), the next layer, and v(z, t), a velocity."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

from .._types import Array
from .abstract import Dynamics, Flow, LayerMap


def as_dynamics(given: Any, in_time: bool) -> LayerMap | Flow:
    """A dynamics as it is; a function f(z, k) as layers, or v(z, t) as a flow if `in_time`."""
    if isinstance(given, LayerMap | Flow):
        return given
    if isinstance(given, type) and issubclass(given, Dynamics):
        raise TypeError(f"dynamics: expected an object, got the class; write {given.__name__}()")
    if not callable(given) or isinstance(given, type):
        raise TypeError(
            "dynamics: expected a LayerMap such as PureAttention(), a Flow, or a function f(z, k) "
            f"or v(z, t), got {given!r}"
        )
    try:
        inspect.signature(given).bind(None, None)
    except TypeError as error:
        wanted = "v(z, t), its velocity at time t" if in_time else "f(z, k), the next layer"
        raise TypeError(f"dynamics: a function of the tokens is {wanted}; {error}") from None
    except ValueError:  # a builtin without a signature: the first call will tell
        pass
    return FunctionFlow(given) if in_time else FunctionLayers(given)


@final
@dataclass(frozen=True, eq=False)
class FunctionLayers(LayerMap):
    """z^{k+1} = function(z^k, k); with padding the function needs a parameter `mask`."""

    function: Callable[..., Array]

    def step(self, z: Array, k: int, *, mask: Array | None = None) -> Array:
        return _called(self.function, z, k, mask)


@final
@dataclass(frozen=True, eq=False)
class FunctionFlow(Flow):
    """dz/dt = function(z, t); with padding the function needs a parameter `mask`."""

    function: Callable[..., Array]

    def velocity(self, z: Array, t: float, *, mask: Array | None = None) -> Array:
        return _called(self.function, z, t, mask)


def _called(function: Callable[..., Array], z: Array, at: float | int, mask: Array | None) -> Array:
    """What the function gives, if it has the shape of the tokens."""
    if mask is None:
        out = function(z, at)
    elif "mask" in inspect.signature(function).parameters:
        out = function(z, at, mask=mask)
    else:
        raise ValueError("dynamics: a function needs a parameter `mask` for runs with padding")
    if tuple(getattr(out, "shape", ())) != tuple(z.shape):
        raise ValueError(
            f"dynamics: expected a function that gives an array of shape {tuple(z.shape)}, got "
            f"{tuple(getattr(out, 'shape', ())) or type(out).__name__}"
        )
    return out
