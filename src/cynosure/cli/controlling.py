"""`cynosure control`: choose who leads, or take a lead away."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .helping import opt
from .inputs import Inputs, claim, listed
from .options import ForceOption, JsonOption, MatrixOption, TokensArg
from .output import Voice, document, write_text
from .terminal import show, show_json

if TYPE_CHECKING:
    import numpy as np


def control(
    ctx: typer.Context,
    tokens: TokensArg,
    leaders: Annotated[str | None, opt("Make these tokens lead, such as 3,5 (from 0).")] = None,
    remove: Annotated[
        int | None, opt("Find the smallest changes that stop this token leading.")
    ] = None,
    condition: Annotated[float, opt("Largest condition number allowed for A.")] = 1e6,
    A: MatrixOption = None,
    out: Annotated[Path | None, opt("A as .csv, for --A of other commands.")] = None,
    json_: JsonOption = False,
    force: ForceOption = False,
) -> None:
    """Find a matrix A under which chosen tokens lead.

    A is symmetric positive definite. If no such A exists, the command proves it.

    Confirmed by the exact sets at layer 0 and by the certified limit. Exit code 1 when no such A
    exists. Several leaders need the extra: pip install "cynosure[control]".

    --remove instead gives the matrix nearest to A (identity if absent) under which that token does
    not lead at layer 0, and says how little the token itself would have to move.

    \b
    cynosure control tokens.csv --leaders 3,5 --out A.csv
    cynosure limit tokens.csv --A A.csv
    cynosure control tokens.csv --remove 3
    """
    if (leaders is None) == (remove is None):
        raise ValueError("control: expected either --leaders, such as 3,5, or --remove, such as 3")
    if leaders is not None and A is not None:
        raise ValueError("--A: only with --remove; --leaders finds A itself")
    claim(out, (".csv",), force)
    voice: Voice = ctx.obj
    inputs = Inputs.read(tokens, A)
    if leaders is not None:
        form, data, said = _lead(inputs, _indices(leaders, len(inputs.z)), condition)
    else:
        assert remove is not None
        form, data, said = _follow(inputs, _indices(str(remove), len(inputs.z), "--remove")[0])
    rows = [] if form is None else [",".join(repr(float(x)) for x in row) for row in form]
    if json_:
        show_json(document(voice, inputs, data))
    elif out is None and rows:
        show("\n".join(rows))
    if out is not None and rows:
        write_text(out, "\n".join(rows) + "\n")
        voice.note(f"wrote {out}")
    for line in said:
        voice.note(line)
    if form is None:
        raise typer.Exit(1)


def _lead(
    inputs: Inputs, targets: list[int], condition: float
) -> tuple[np.ndarray | None, dict[str, Any], list[str]]:
    """(A or None, the document, what to say) for tokens that are to lead."""
    from ..analysis.control.steering import control as steer
    from ..analysis.limits import limit
    from ..attention import Hardmax
    from ..dynamics import PureAttention

    control = steer(inputs.z, targets, condition=condition)
    names = ("feasible", "A", "margin", "condition", "witness")
    data: dict[str, Any] = {name: getattr(control, name) for name in names}
    if control.A is None:
        return None, data, [f"no A was found: {control.witness}."]
    li = limit(PureAttention(Hardmax(control.A)), inputs.z)
    data["limit"] = {"leaders": li.leaders, "born": li.born[li.leaders], "certified": li.certified}
    proved = "certified" if li.certified else "not wholly certified"
    said = f"margin {control.margin:.3g}, condition {control.condition:.3g}: {control.witness}."
    leading = f"in the limit (alpha = 1, {proved}) lead {listed(li.leaders)}."
    return control.A, data, [said, leading]


def _follow(inputs: Inputs, i: int) -> tuple[np.ndarray | None, dict[str, Any], list[str]]:
    """The same for a token that is to lead no more."""
    from ..analysis.control.removal import remove_leader

    removal = remove_leader(inputs.z, i, inputs.A)
    move = {"to": removal.z[i], "distance": removal.distance, "follows": removal.follows}
    data = {"A": removal.A, "change": removal.change, "moved": move}
    moved = f"moved by {removal.distance:.4g} token {i} would follow {removal.follows}."
    if removal.A is None:
        return None, data, [f"no matrix A takes the lead from token {i}.", moved]
    return removal.A, data, [f"changed by {removal.change:.4g} in the Frobenius norm; or, {moved}"]


def _indices(text: str, n: int, option: str = "--leaders") -> list[int]:
    """ "3,5" as token indices below n."""
    try:
        chosen = [int(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"{option}: expected indices such as 3,5, got {text!r}") from None
    if not all(0 <= i < n for i in chosen):
        raise ValueError(f"{option}: indices are 0..{n - 1}, got {text!r}")
    return chosen
