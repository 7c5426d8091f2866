"""`cynosure shadow`: how long a softmax run provably keeps its clusters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from .helping import opt
from .inputs import Inputs, listed, step
from .options import AlphaOption, DeadlineOption, JsonOption, MatrixOption, TokensArg
from .output import Voice, document
from .terminal import show, show_json

if TYPE_CHECKING:
    from ..analysis.shadowing import Plateau, Shadow


def shadow(
    ctx: typer.Context,
    tokens: TokensArg,
    beta: Annotated[float, opt("Inverse temperature of softmax.")] = 10.0,
    alpha: AlphaOption = "0.5",
    A: MatrixOption = None,
    layers: Annotated[int, opt("Follow at most so many token by token.")] = 1_000,
    tolerance: Annotated[float | None, opt("Distance up to which it agrees with hardmax.")] = None,
    wanted: Annotated[float | None, opt("Also the beta that lasts so many layers.")] = None,
    deadline: DeadlineOption = None,
    json_: JsonOption = False,
) -> None:
    """Prove how long a softmax run keeps its clusters.

    Every number is a proved bound: rounding is bounded, and nothing is assumed of A.

    \b
    cynosure shadow tokens.csv --beta 12
    cynosure shadow gaussian:n=40,d=2,seed=0 --beta 8 --wanted 1e6
    """
    from ..analysis.shadowing import shadow as prove
    from ..attention import Softmax
    from ..dynamics import PureAttention

    voice: Voice = ctx.obj
    inputs = Inputs.read(tokens, A)
    voice.taken(inputs)
    model = PureAttention(Softmax(beta, inputs.A), step(alpha))
    found = prove(model, inputs.z, layers=layers, tolerance=tolerance, deadline=deadline)
    needed = None
    if wanted is not None and found.plateaus:
        needed = found.plateaus[-1].beta_for(wanted)
    if json_:
        data = {"beta": beta, "alpha": str(model.exact_alpha), "beta_for": needed}
        show_json(document(voice, inputs, data | found.to_dict()))
        return
    for line in _lines(found):
        show(line)
    if needed is not None:
        show(f"{wanted:g} layers for the last clusters, at their places: beta {needed:.4g}")
    voice.note(f"{found.layers} layers followed, each token within {found.error.max():.2g}.")
    voice.note(f"followed no further: {found.stopped}.")


def _lines(found: Shadow) -> list[str]:
    if not found.plateaus:
        return ["no plateau proved: raise --layers or --beta"]
    lines = [line for p in found.plateaus for line in _of(p)]
    joined = [
        f"  joined to {len(p.clusters)}: {p.lasts:.3g} layers at least"
        + (f", one each within {10**p.log10_joined:.3g}" if p.log10_joined < 300 else "")
        for p in found.coarser
    ]
    until = found.agrees_until(found.tolerance)
    same, most = int((until >= 0.99 * until.max()).sum()), float(until.max())
    return [
        *lines,
        *joined,
        f"within {found.tolerance:.3g} of hardmax: {same} of {len(until)} tokens until layer "
        f"{most:.6g}, all until {until.min():.6g}",
    ]


def _of(p: Plateau) -> list[str]:
    sizes = listed(len(x) for x in p.clusters)
    if len(p.clusters) == 1:
        return [f"one cluster from layer {p.since} on"]
    a, b = p.binding
    return [
        f"{len(p.clusters)} clusters ({sizes} tokens) from layer {p.since} to {p.until:.6g} at "
        "least",
        f"  no token farther than {p.radius:.3g} from its place; least gap {p.gap:.3g}, of "
        f"cluster {a} to {b}",
        f"  the proof ends there: {p.ends}",
    ]
