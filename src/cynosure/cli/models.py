"""Which dynamics, attention and stepper a command is told to take: NAME:key=value,key=value.

Everything is read off the registries `DYNAMICS`, `ATTENTIONS` and `STEPPERS` and the fields of
their dataclasses, so that a model entered there is on the command line the same day.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from .inputs import listed, named_value, step

if TYPE_CHECKING:
    import numpy as np

    from ..attention import Attention
    from ..dynamics import Dynamics
    from ..simulation.steppers import Stepper

__all__ = ["Clock", "Model"]

_MATRICES = ("A", "Q", "K", "V", "W1", "W2")


@final
@dataclass(frozen=True, eq=False)
class Model:
    """What `simulate` was asked to run; None is the default of the dynamics."""

    dynamics: Sequence[str] = ("pure_attention",)
    attention: Sequence[str] = ()
    alpha: str | None = None
    beta: float | None = None
    matrices: Mapping[str, np.ndarray] = field(default_factory=dict)  # A, Q, K, V
    causal: bool = False
    summed: bool = False
    span: float | None = None  # of each of several flows

    def build(self, d: int) -> Dynamics:
        """The dynamics on R^d; several take turns."""
        from ..dynamics import Flow, LayerMap, Scheduled, ScheduledFlow

        made = [self._one(spec, d) for spec in self.dynamics]
        layers = [one for one in made if isinstance(one, LayerMap)]
        flows = [one for one in made if isinstance(one, Flow)]
        if self.span is not None and len(flows) < 2:
            raise ValueError("--span: how long each of several flows lasts; give --dynamics twice")
        if len(made) == 1:
            return made[0]
        if len(layers) == len(made):
            return Scheduled(layers)
        if layers or len({type(flow) for flow in flows}) > 1:
            raise ValueError("--dynamics: expected layers, or flows of one kind, to take turns")
        return ScheduledFlow(flows, 1.0 if self.span is None else self.span)

    def _one(self, spec: str, d: int) -> Dynamics:
        from ..dynamics import DYNAMICS, Scheduled, ScheduledFlow, SelfAttention

        name, kind, options = _split(spec, DYNAMICS, "--dynamics")
        if kind in (Scheduled, ScheduledFlow):
            raise ValueError("--dynamics: a schedule is several of them, --dynamics X --dynamics Y")
        names = _names(kind)
        flags = self._flags()
        if issubclass(kind, SelfAttention):
            _into_query(flags, d)
        values: dict[str, Any] = {k: v for k, v in flags.items() if k in names}
        rest = {k: v for k, v in flags.items() if k not in names}
        if "attention" in names:
            values["attention"] = self._attention(kind, rest)
        elif self.attention or self.causal:
            why = "takes none, or has its own softmax of <Qx, Ky>"
            raise ValueError(f"--attention, --causal: {name} {why}")
        if rest:
            raise ValueError(f"--{next(iter(rest))}: {name} has none (it has {listed(names)})")
        if "alpha" in names:
            values.setdefault("alpha", step("0.5"))
        values |= _read(options, kind, f"--dynamics {spec}")
        return kind(**values)

    def _flags(self) -> dict[str, Any]:
        """alpha, beta and the matrices, as far as they were given."""
        flags: dict[str, Any] = dict(self.matrices)
        if self.alpha is not None:
            flags["alpha"] = step(self.alpha)
        if self.beta is not None:
            flags["beta"] = self.beta
        return flags

    def _attention(self, kind: type, flags: dict[str, Any]) -> Attention:
        """The heads asked for, or the attention the dynamics has by default; takes its flags."""
        from ..attention import ATTENTIONS, Causal, Hardmax, Heads, RowAttention

        default: Any = next(f for f in fields(kind) if f.name == "attention").default_factory
        specs = self.attention or [name for name, rule in ATTENTIONS.items() if rule is default]
        heads, values, used = [], [], set()
        for spec in specs:
            _, rule, options = _split(spec, ATTENTIONS, "--attention")
            value = options.pop("V", None)
            head = _rule(rule, options, flags, f"--attention {spec}")
            kinds = [type(head), type(getattr(head, "attention", head))]
            used |= {k for k in flags for kind in kinds if k in _names(kind)}
            if self.causal and not isinstance(head, RowAttention | Hardmax):
                raise ValueError(f"--causal: {spec} looks at all tokens at once")
            heads.append(Causal(head) if self.causal else head)
            values.append(None if value is None else _matrix(value))
        for name in used:
            del flags[name]
        if "beta" in flags:
            raise ValueError(f"--beta: {listed(specs)} attention has none; add --attention softmax")
        if len(heads) == 1 and values[0] is None:
            return heads[0]
        given = any(value is not None for value in values)
        return Heads(heads, values if given else None, average=not self.summed)


def _rule(kind: type, options: dict[str, str], flags: Mapping[str, Any], where: str) -> Any:
    """An attention from its options and the flags; one that wraps another names it, and gives it
    the flags and the options that are not its own."""
    names = _names(kind)
    if "attention" not in names:
        return kind(
            **({k: v for k, v in flags.items() if k in names} | _read(options, kind, where))
        )
    from ..attention import ATTENTIONS

    default = next(f for f in fields(kind) if f.name == "attention").default_factory
    own = {k: v for k, v in options.items() if k in names and k != "attention"}
    rest = {k: v for k, v in options.items() if k not in names}
    word = options.get("attention")
    inner: Any = default if word is None else _split(word, ATTENTIONS, where)[1]
    if "attention" in _names(inner):
        raise ValueError(f"{where}: {kind.__name__} wraps hardmax, softmax or localmax")
    return kind(attention=_rule(inner, rest, flags, where), **_read(own, kind, where))


@final
@dataclass(frozen=True)
class Clock:
    """How long `simulate` was asked to run and what to save; None is the default."""

    layers: int | None = None
    time: float | None = None
    stepper: str | None = None  # of a flow, such as rk4:dt=0.05 or adaptive:rtol=1e-6
    save_every: int = 1
    deadline: float | None = None  # seconds

    def of(self, dynamics: Dynamics) -> tuple[float, str, dict[str, Any]]:
        """(end, its unit, arguments of `simulate`): layers [30], or the time [10] of a flow."""
        name = type(dynamics).__name__
        how: dict[str, Any] = {"save_every": self.save_every, "deadline": self.deadline}
        stepper = _stepper(self.stepper)
        if dynamics.in_time:
            if self.layers is not None:
                raise ValueError(f"--layers: {name} runs in time; say --time")
            time = 10.0 if self.time is None else self.time
            return time, "of time", how | {"time": time, "stepper": stepper}
        if self.time is not None or stepper is not None:
            raise ValueError(f"--time, --stepper: {name} runs in layers; say --layers")
        layers = 30 if self.layers is None else self.layers
        return layers, "layers", how | {"layers": layers}


def _stepper(spec: str | None) -> Stepper | None:
    from ..simulation.steppers import STEPPERS

    if spec is None:
        return None
    _, kind, options = _split(spec, STEPPERS, "--stepper")
    return kind(**_read(options, kind, f"--stepper {spec}"))


def _into_query(flags: dict[str, Any], d: int) -> None:
    """<Q x, K y> has no beta and no A of its own: A = K^T Q, and beta multiplies Q."""
    import numpy as np

    if "A" in flags:
        if "Q" in flags or "K" in flags:
            raise ValueError("--A: give either A, or Q and K with A = K^T Q")
        flags["Q"] = flags.pop("A")
    if "beta" in flags:
        flags["Q"] = flags.pop("beta") * flags.get("Q", np.eye(d))


def _split(spec: str, registry: Mapping[str, type], flag: str) -> tuple[str, Any, dict[str, str]]:
    """Name, class and options of NAME:key=value,...; the beginning of one name will do."""
    word, _, options = spec.partition(":")
    fitting = [name for name in registry if name == word] or [
        name for name in registry if name.startswith(word.replace("-", "_"))
    ]
    if not word or len(fitting) != 1:
        which = "several begin so" if len(fitting) > 1 else "there is none"
        raise ValueError(
            f"{flag} {spec}: {which} (there are {listed(fitting or registry)}), NAME:key=value,..."
        )
    parts = [part.strip() for part in options.split(",") if part.strip()]
    bare = [part for part in parts if "=" not in part]
    if bare:
        raise ValueError(f"{flag} {spec}: expected key=value, got {bare[0]!r}")
    return fitting[0], registry[fitting[0]], dict(part.split("=", 1) for part in parts)


def _names(kind: type) -> list[str]:
    return [f.name for f in fields(kind) if f.init]


def _read(options: Mapping[str, str], kind: type, where: str) -> dict[str, Any]:
    """Values by field: matrices from files, alpha as --alpha, numbers and words."""
    names = [name for name in _names(kind) if name not in ("attention", "layers")]
    defaults = {f.name: f.default for f in fields(kind)}
    out: dict[str, Any] = {}
    for key, text in options.items():
        if key not in names:
            raise ValueError(f"{where}: no {key!r} there (there are {listed(names)})")
        if key in _MATRICES:
            out[key] = _matrix(text)
        elif key == "alpha":
            out[key] = step(text)
        else:
            value, default = named_value(text), defaults[key]
            if isinstance(default, int | float) and isinstance(value, str):
                raise ValueError(f"{where}: expected a number for {key}, got {text!r}")
            out[key] = float(value) if isinstance(default, float) else value
    return out


def _matrix(path: str) -> np.ndarray:
    from ..simulation.configurations import read

    if not Path(path).exists():
        raise ValueError(f"{path} does not exist (a matrix is a file of numbers)")
    return read(path)
