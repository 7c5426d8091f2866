"""What a dynamics is: layers (`LayerMap`) or a flow in time (`Flow`), and what readers ask it."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from fractions import Fraction
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias, final

import numpy as np

from .._blame import shown
from .._display import Shown
from .._types import Array
from ..attention import Attention, Hardmax

ClosedForm = Callable[[np.ndarray], np.ndarray]  # times (m,) to tokens (m, n, d)
Tendency: TypeAlias = Literal["unknown", "one point", "polytope", "hyperplanes", "boolean"]


def end_of(attention: Attention) -> Tendency:
    """Where tokens end that only ever move towards their pull, V = I."""
    if isinstance(attention, Hardmax):
        return "polytope"
    return "one point" if attention.positive else "unknown"


class HardmaxLayers(NamedTuple):
    """Layers that the certified walk can follow (docs/mathematics.md A1):

        z_i <- z_i + alpha / (1 + alpha) (mean of the z_j, j in C_i, - z_i)

    The tokens of the dynamics at layer k are factor^k times these: 1 + alpha for a layer without
    normalisation, whose sets C_i are the same because hardmax does not see a common factor.
    """

    attention: Hardmax
    alpha: Fraction
    factor: Fraction = Fraction(1)

    @property
    def normalised(self) -> bool:
        return self.factor == 1


class FrozenEquation(NamedTuple):
    """What a dynamics becomes once its attention matrix P is held fixed: a linear equation.

        in time: X' = M X V^T - decay X          in layers: X^{k+1} = M X^k

    X has the tokens as rows; V is None for the identity (docs/mathematics.md E9).
    """

    M: np.ndarray
    V: np.ndarray | None = None
    decay: float = 0.0


class Dynamics(Shown, abc.ABC):
    """Anything that makes a trajectory of tokens: a LayerMap (discrete) or a Flow (continuous).

    Only the motion must be written (`step` or `velocity`). All other methods have defaults, which
    are right if nothing more is known.
    """

    in_time: ClassVar[bool]  # does it run in continuous time, or in layers?
    grows: ClassVar[bool] = False  # do tokens change their size beyond bounds, unnormalised?
    attention: Attention | None = None  # who looks at whom, where one attention says so
    V: Array = None  # the value matrix, None for the identity

    def __new__(cls, *args: Any, **given: Any) -> Any:
        kind: Any = cls
        if (args or given) and is_dataclass(kind):
            names = [f.name for f in fields(kind) if f.init]
            if wrong := [name for name in given if name not in names]:
                raise TypeError(f"{cls.__name__}: {_instead(wrong[0], given[wrong[0]], names)}")
            rule = (dict(zip(names, args, strict=False)) | given).get("attention", Hardmax())
            if not isinstance(rule, Attention):
                said = "attention: expected one such as cy.Hardmax() or cy.Softmax(beta=5)"
                raise TypeError(f"{said}, got {shown(rule)}")
        return super().__new__(cls)

    def begin(self, z: Array) -> Array:
        """The state that starts from the tokens z, shape (*b, n, any): the tokens themselves.

        A dynamics with more than tokens, momenta for example, puts it into further columns. Its
        `step` or `velocity` then gets and gives states, and `observe` finds the tokens in them.
        """
        return z

    def observe(self, state: Array) -> Array:
        """The tokens (..., n, d) of states (..., n, any)."""
        return state

    @property
    def hidden(self) -> bool:
        """Is there more to a state than its tokens?"""
        return type(self).observe is not Dynamics.observe

    def at(self, t: float | int) -> Dynamics:
        """The dynamics at layer or time t: itself, or one of several that take turns."""
        return self

    @property
    def score_matrix(self) -> Array:
        """The A of the scores <A z_i, z_j>; None for the identity."""
        return None if self.attention is None else self.attention.A

    @property
    def averaging(self) -> Attention | None:
        """The attention whose mean each token moves to, where that is all that moves it."""
        return None

    @property
    def projected(self) -> Attention | None:
        """The attention whose mean, projected to the unit sphere, is all that moves tokens."""
        return None

    @property
    def exact_alpha(self) -> Fraction | None:
        """The step alpha of layers that have one."""
        return None

    @property
    def hardmax_layers(self) -> HardmaxLayers | None:
        """The certified layers that these are: only they have leaders and proved limits."""
        return None

    def tends_to(self, d: int) -> Tendency:
        """What theory says about the end of a run in R^d (docs/mathematics.md).

        "one point": clusters merge in the end (B30, B33). "polytope": they stay at points of a
        polytope (B3, B24). "boolean": the same on a line, where P tends to zeros and ones (B22).
        "hyperplanes": only components along the leading eigenspace of V converge (B26, B27).
        """
        return "unknown"

    def growth(self, t: np.ndarray) -> np.ndarray:
        """The factor by which tokens grow until t, where it is known; growth(-t) divides it out."""
        return np.ones(np.shape(t))

    def converging(self, z: np.ndarray) -> np.ndarray:
        """The part of the tokens z that can converge: z itself, or directions if lengths grow."""
        return z

    def weights(self, z: Array, t: float = 0.0, *, mask: Array | None = None) -> Array:
        """The attention matrix P at the tokens z and the layer or time t, shape (*b, n, n)."""
        if (now := self.at(t)) is not self:
            return now.weights(z, t, mask=mask)
        if self.attention is None:
            raise ValueError(f"dynamics: {type(self).__name__} has no attention matrix")
        return self.attention.weights(z, mask=mask)

    def frozen(self, P: np.ndarray) -> FrozenEquation | None:
        """The linear equation with P held fixed; None where that is not linear, or not known."""
        return None


def _instead(name: str, value: Any, names: list[str]) -> str:
    """The line to write for an argument that a dynamics does not have."""
    said = f"{name}={value!r}" if isinstance(value, int | float | str) else f"{name}={name}"
    if "attention" in names and name in ("A", "beta"):
        rule = "Softmax" if name == "beta" else "Hardmax"
        return f"{name} belongs to the attention; write attention={rule}({said})"
    return f"no parameter {name!r}; it has {', '.join(names) or 'none'}"


class LayerMap(Dynamics):
    """Discrete layers: z^{k+1} = step(z^k, k)."""

    in_time: ClassVar[Literal[False]] = False

    def alone(self, place: int) -> LayerMap:
        """The layers that repeat configuration number `place` of a batch in a run of its own."""
        return self

    @abc.abstractmethod
    def step(self, z: Array, k: int, *, mask: Array | None = None) -> Array:
        """The next layer, shape (*b, n, d). Padding may come back moved: `simulate` restores it."""


class Flow(Dynamics):
    """Continuous time: dz/dt = velocity(z, t), on R^d or on the manifold that `retract` maps to."""

    in_time: ClassVar[Literal[True]] = True

    @abc.abstractmethod
    def velocity(self, z: Array, t: float, *, mask: Array | None = None) -> Array:
        """dz/dt, shape (*b, n, d). What it says about padding is ignored by `simulate`."""

    def pieces(self, time: float) -> Iterator[tuple[Flow, float, float]]:
        """(flow, begin, end) in order until `time`; several where the velocity jumps in time."""
        yield self, 0.0, time

    def pace(self, size: float, length: float, along: float) -> tuple[float, float]:
        """What divides the speed of directions, and how fast a length grows (B37).

        For a token of this `length` whose output a has the `size` |a|, `along` its direction.
        """
        return 1.0, 0.0

    def retract(self, z: Array) -> Array:
        """The tokens put back on the manifold; the identity on R^d."""
        return z

    def closed_form(self, z: np.ndarray, t: float) -> ClosedForm | None:
        """The tokens as a function of all later times, where they are known from z (n, d) at t.

        An adaptive stepper asks after every step: past that point explicit steps only add noise.
        """
        return None

    @property
    def drowns(self) -> bool:
        """Can what attention reads sink below the rounding of the rest?"""
        return False

    def drowned(self, z: np.ndarray, t: float, rtol: float) -> bool:
        """Has what attention reads of z (n, d) less than two digits, each coordinate having `rtol`?

        Asked of saved states, and by an adaptive stepper whose steps become short.
        """
        return False

    @property
    def advice(self) -> str:
        """What to do when a run of this flow overflows."""
        return "Use a shorter time."

    @property
    def advice_if_stiff(self) -> str:
        """What to do when an adaptive stepper needs too many steps."""
        return (
            "Take a fixed step such as RK4(0.05), which averages over what is too fast to follow, "
            "a shorter time or looser tolerances; Adaptive(most_steps=...) allows more steps."
        )


@final
@dataclass(frozen=True, eq=False)
class Unknown(LayerMap):
    """The layers of a run that does not say what made it, those of a trained model for example."""

    def step(self, z: Array, k: int, *, mask: Array | None = None) -> Array:
        raise ValueError("this run does not say what made it, so no further layer can be computed")
