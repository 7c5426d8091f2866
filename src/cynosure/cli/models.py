"""Dynamics, attention and stepper of a command: NAME:key=value, read off the registries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from .inputs import key_values, listed, named_value, step

if TYPE_CHECKING:
    import numpy as np

    from .._registry import Registry
    from ..attention import Attention
    from ..dynamics import Dynamics

_MATRICES = ("A", "Q", "K", "V", "W1", "W2")


@final
@dataclass(frozen=True, eq=False)
class Model:
    """What `simulate` was asked to run; None is the default of the dynamics."""

    dynamics: Sequence[str] = ("pure_attention",)
    attention: Sequence[str] = ()
    alpha: str | None = None
    beta: float | None = None
    matrices: Mapping[str, Any] = field(default_factory=dict)  # A, Q, K, V
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
            raise ValueError("--dynamics: expected layers, or flows of one kind, to alternate")
        return ScheduledFlow(flows, 1.0 if self.span is None else self.span)

    def _one(self, spec: str, d: int) -> Dynamics:
        from ..dynamics import DYNAMICS, Scheduled, ScheduledFlow, SelfAttention

        name, kind, options = _split(spec, DYNAMICS, "--dynamics")
        if kind in (Scheduled, ScheduledFlow):
            raise ValueError("--dynamics: a schedule is several of them, --dynamics X --dynamics Y")
        names, flags = _names(kind), dict(self.matrices)
        flags |= {} if self.alpha is None else {"alpha": step(self.alpha)}
        flags |= {} if self.beta is None else {"beta": self.beta}
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

    def _attention(self, kind: type, flags: dict[str, Any]) -> Attention:
        """The heads asked for, or the attention the dynamics has by default; takes its flags."""
        from ..attention import ATTENTIONS, Causal, Hardmax, Heads, RowAttention

        default: Any = next(f for f in fields(kind) if f.name == "attention").default_factory
        specs = self.attention or [name for name, rule in ATTENTIONS.items() if rule is default]
        heads, values, used = [], [], set()
        for spec in specs:
            _, rule, options = _split(spec, ATTENTIONS, "--attention")
            values.append(_matrix(options.pop("V")) if "V" in options else None)
            head = _rule(rule, options, flags, f"--attention {spec}")
            kinds = [type(head), type(getattr(head, "attention", head))]
            used |= {k for k in flags for kind in kinds if k in _names(kind)}
            if self.causal and not isinstance(head, RowAttention | Hardmax):
                raise ValueError(f"--causal: {spec} looks at all tokens at once")
            heads.append(Causal(head) if self.causal else head)
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
        own = {k: v for k, v in flags.items() if k in names}
        return kind(**own | _read(options, kind, where))
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
        from ..simulation.steppers import STEPPERS

        name, stepper = type(dynamics).__name__, None
        how: dict[str, Any] = {"save_every": self.save_every, "deadline": self.deadline}
        if self.stepper is not None:
            _, kind, options = _split(self.stepper, STEPPERS, "--stepper")
            stepper = kind(**_read(options, kind, f"--stepper {self.stepper}"))
        if dynamics.in_time:
            if self.layers is not None:
                raise ValueError(f"--layers: {name} runs in time; say --time")
            time = 10.0 if self.time is None else self.time
            return time, "of time", how | {"time": time, "stepper": stepper}
        if self.time is not None or stepper is not None:
            raise ValueError(f"--time, --stepper: {name} runs in layers; say --layers")
        layers = 30 if self.layers is None else self.layers
        return layers, "layers", how | {"layers": layers}


def _into_query(flags: dict[str, Any], d: int) -> None:
    """<Q x, K y> has no beta and no A of its own: A = K^T Q, and beta multiplies Q."""
    import numpy as np

    if "A" in flags:
        if "Q" in flags or "K" in flags:
            raise ValueError("--A: give either A, or Q and K with A = K^T Q")
        flags["Q"] = flags.pop("A")
    if "beta" in flags:
        flags["Q"] = flags.pop("beta") * flags.get("Q", np.eye(d))


def _split(spec: str, registry: Registry[Any], flag: str) -> tuple[str, Any, dict[str, str]]:
    """Name, class and options of NAME:key=value,... or module:Name; a beginning will do."""
    word, _, options = spec.partition(":")
    name, _, rest = options.partition(":")
    if name.isidentifier() and word not in registry:
        word, options = f"{word}:{name}", rest
    try:
        kind = registry.named(word if ":" in word else word.replace("-", "_"))
    except (ValueError, TypeError) as error:
        raise ValueError(f"{flag} {error}") from None
    bare, values = key_values(options)
    if bare:
        raise ValueError(f"{flag} {spec}: expected key=value, got {bare[0]!r}")
    return next((name for name, one in registry.items() if one is kind), word), kind, values


def _names(kind: type) -> list[str]:
    """Its parameters; a class of somebody's own need not be a dataclass, and has none then."""
    return [f.name for f in fields(kind) if f.init] if is_dataclass(kind) else []


def _read(options: Mapping[str, str], kind: type, where: str) -> dict[str, Any]:
    """Values by field: matrices from files, alpha as --alpha, numbers and words."""
    names = [name for name in _names(kind) if name not in ("attention", "layers")]
    defaults = {f.name: f.default for f in fields(kind)} if names else {}
    out: dict[str, Any] = {}
    for key, text in options.items():
        if key not in names:
            known = listed(names) or "no parameters"
            raise ValueError(f"{where}: no {key!r} there (there are {known})")
        default, read = defaults[key], {"alpha": step}.get(key, named_value)
        value: Any = _matrix(text) if key in _MATRICES else read(text)
        if isinstance(default, int | float) and isinstance(value, str):
            raise ValueError(f"{where}: expected a number for {key}, got {text!r}")
        out[key] = float(value) if isinstance(default, float) and key != "alpha" else value
    return out


def _matrix(path: str) -> np.ndarray:
    from ..simulation.configurations import read

    if not Path(path).exists():
        raise ValueError(f"{path} does not exist (a matrix is a file of numbers)")
    return read(path)
