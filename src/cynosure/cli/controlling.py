"""`cynosure control`: choose who leads."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .commands import COMMON, ForceOption, JsonOption, TokensArg, _write, app
from .given import Given, claim
from .shown import Voice, document


@app.command(epilog=COMMON)
def control(
    ctx: typer.Context,
    tokens: TokensArg,
    leaders: Annotated[str, typer.Option(help="Tokens that shall lead, such as 3,5 (from 0).")],
    condition: Annotated[float, typer.Option(help="Largest condition number allowed for A.")] = 1e6,
    out: Annotated[Path | None, typer.Option(help="A as .csv, for --A of other commands.")] = None,
    json_: JsonOption = False,
    force: ForceOption = False,
) -> None:
    """A symmetric positive definite A under which the given tokens lead, or why there is none.

    Exit code 1 when no such A exists. Several leaders need the extra: pip install
    "cynosure[control]".

    \b
    cynosure control tokens.csv --leaders 3,5 --out A.csv
    cynosure limit tokens.csv --A A.csv
    """
    from ..report import jsonable
    from ..steering import control as steer

    claim(out, (".csv",), force)
    voice: Voice = ctx.obj
    given = Given.read(tokens, None)
    found = steer(given.z, _indices(leaders, len(given.z)), condition=condition)
    rows = [] if found.A is None else [",".join(repr(float(x)) for x in row) for row in found.A]
    if json_:
        data = {
            "feasible": found.feasible,
            "A": found.A,
            "margin": found.margin,
            "condition": found.condition,
            "witness": {"reason": found.witness.reason, "weights": found.witness.weights},
        }
        print(document(voice, given, jsonable(data)))
    elif out is None:
        print("\n".join(rows)) if rows else None
    if out is not None and rows:
        _write(out, "\n".join(rows) + "\n")
        voice.note(f"wrote {out}")
    if not found.feasible:
        voice.note(f"no such A: {found.witness}.")
        raise typer.Exit(1)
    voice.note(f"margin {found.margin:.3g}, condition {found.condition:.3g}: {found.witness}.")


def _indices(text: str, n: int) -> list[int]:
    """ "3,5" as token indices below n."""
    try:
        chosen = [int(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"--leaders: expected indices such as 3,5, got {text!r}") from None
    if not all(0 <= i < n for i in chosen):
        raise ValueError(f"--leaders: indices are 0..{n - 1}, got {text!r}")
    return chosen
