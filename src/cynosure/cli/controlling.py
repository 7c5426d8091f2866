"""`cynosure control`: choose who leads, or take a lead away."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .commands import COMMON, ForceOption, JsonOption, MatrixOption, TokensArg, _write, app
from .inputs import Given, claim, listed
from .output import Voice, document

if TYPE_CHECKING:
    import numpy as np


@app.command(epilog=COMMON)
def control(
    ctx: typer.Context,
    tokens: TokensArg,
    leaders: Annotated[
        str | None, typer.Option(help="Tokens that shall lead, such as 3,5 (from 0).")
    ] = None,
    remove: Annotated[
        int | None,
        typer.Option(help="Token that shall not lead: the smallest changes to that end."),
    ] = None,
    condition: Annotated[float, typer.Option(help="Largest condition number allowed for A.")] = 1e6,
    A: MatrixOption = None,
    out: Annotated[Path | None, typer.Option(help="A as .csv, for --A of other commands.")] = None,
    json_: JsonOption = False,
    force: ForceOption = False,
) -> None:
    """A symmetric positive definite A under which the given tokens lead, or why there is none.

    Confirmed by the exact sets at layer 0 and by the certified limit. Exit code 1 when no such A
    exists. Several leaders need the extra: pip install "cynosure[control]".

    --remove instead gives the nearest form to A (identity if absent) under which that token does
    not lead at layer 0, and says how little the token itself would have to move.

    \b
    cynosure control tokens.csv --leaders 3,5 --out A.csv
    cynosure limit tokens.csv --A A.csv
    cynosure control tokens.csv --remove 3
    """
    if (leaders is None) == (remove is None):
        raise ValueError("control: expected either --leaders, such as 3,5, or --remove, such as 3")
    if leaders is not None and A is not None:
        raise ValueError("--A: the form to start from, for --remove; --leaders finds one")
    claim(out, (".csv",), force)
    voice: Voice = ctx.obj
    given = Given.read(tokens, A)
    if leaders is not None:
        form, data, said = _lead(given, _indices(leaders, len(given.z)), condition)
    else:
        assert remove is not None
        form, data, said = _follow(given, _indices(str(remove), len(given.z), "--remove")[0])
    rows = [] if form is None else [",".join(repr(float(x)) for x in row) for row in form]
    if json_:
        from ..drawing.report import jsonable

        print(document(voice, given, jsonable(data)))
    elif out is None and rows:
        print("\n".join(rows))
    if out is not None and rows:
        _write(out, "\n".join(rows) + "\n")
        voice.note(f"wrote {out}")
    for line in said:
        voice.note(line)
    if form is None:
        raise typer.Exit(1)


def _lead(
    given: Given, targets: list[int], condition: float
) -> tuple[np.ndarray | None, dict[str, Any], list[str]]:
    """(A or None, the document, what to say) for tokens that shall lead."""
    from ..analysis.limits import limit
    from ..analysis.steering import control as steer
    from ..attention import Hardmax
    from ..dynamics import PureAttention

    found = steer(given.z, targets, condition=condition)
    data: dict[str, Any] = {
        "feasible": found.feasible,
        "A": found.A,
        "margin": found.margin,
        "condition": found.condition,
        "witness": found.witness,
    }
    if found.A is None:
        return None, data, [f"no such A: {found.witness}."]
    li = limit(PureAttention(Hardmax(found.A)), given.z)
    data["limit"] = {"leaders": li.leaders, "born": li.born[li.leaders], "certified": li.certified}
    proved = "certified" if li.certified else "not wholly certified"
    return (
        found.A,
        data,
        [
            f"margin {found.margin:.3g}, condition {found.condition:.3g}: {found.witness}.",
            f"in the limit (alpha = 1, {proved}) lead {listed(li.leaders)}.",
        ],
    )


def _follow(given: Given, i: int) -> tuple[np.ndarray | None, dict[str, Any], list[str]]:
    """The same for a token that shall not lead any more."""
    from ..analysis.steering import remove_leader

    found = remove_leader(given.z, i, given.A)
    data = {
        "A": found.A,
        "change": found.change,
        "moved": {"to": found.z[i], "distance": found.distance, "follows": found.follows},
    }
    moved = f"moved by {found.distance:.4g} token {i} would follow {found.follows}."
    if found.A is None:
        return None, data, [f"no form takes the lead of token {i} away.", moved]
    return found.A, data, [f"changed by {found.change:.4g} in the Frobenius norm; or, {moved}"]


def _indices(text: str, n: int, option: str = "--leaders") -> list[int]:
    """ "3,5" as token indices below n."""
    try:
        chosen = [int(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"{option}: expected indices such as 3,5, got {text!r}") from None
    if not all(0 <= i < n for i in chosen):
        raise ValueError(f"{option}: indices are 0..{n - 1}, got {text!r}")
    return chosen
