"""`cynosure simulate | limit | check`: runs, proved limits, theorems on one's own tokens."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .inputs import Inputs, claim, is_run, listed, step
from .options import (
    AlphaOption,
    AttentionOption,
    BetaOption,
    CausalOption,
    DeadlineOption,
    DeviceOption,
    DynamicsOption,
    ForceOption,
    JsonOption,
    KOption,
    LayersOption,
    MatrixOption,
    MovieOption,
    PlotOption,
    QOption,
    ReportOption,
    RunOption,
    SaveEveryOption,
    SpanOption,
    StepOption,
    StepperOption,
    SumHeadsOption,
    TimeOption,
    TokensArg,
    VOption,
)
from .output import (
    Voice,
    check_detail,
    check_text,
    document,
    limit_data,
    limit_sentence,
    limit_table,
    long_rationals,
    print_table,
    recognised,
    rows_shown,
    rule_codes,
    rules_in_words,
    trajectory_data,
    trajectory_table,
    write_text,
)
from .terminal import show, show_json

if TYPE_CHECKING:
    from ..analysis.limits import Limit
    from ..dynamics import Dynamics, PureAttention
    from ..simulation.trajectory import Trajectory
    from ..theorems import Check
    from .models import Clock

__all__ = ["check", "limit", "simulate"]


def simulate(
    ctx: typer.Context,
    tokens: TokensArg,
    dynamics: DynamicsOption = None,
    attention: AttentionOption = None,
    alpha: StepOption = None,
    beta: BetaOption = None,
    A: MatrixOption = None,
    Q: QOption = None,
    K: KOption = None,
    V: VOption = None,
    causal: CausalOption = False,
    sum_heads: SumHeadsOption = False,
    layers: LayersOption = None,
    time: TimeOption = None,
    span: SpanOption = None,
    stepper: StepperOption = None,
    save_every: SaveEveryOption = 1,
    deadline: DeadlineOption = None,
    device: DeviceOption = "cpu",
    plot: PlotOption = None,
    movie: MovieOption = None,
    out: RunOption = None,
    report: ReportOption = None,
    json_: JsonOption = False,
    force: ForceOption = False,
) -> None:
    """Run layers or a flow: where tokens are, who leads, what they tend to.

    \b
    cynosure simulate tokens.csv --alpha 0.5 --layers 30 --movie layers.gif
    cynosure simulate tokens.csv --report page.html
    cynosure simulate gaussian:n=1000,d=3 --A A.csv --out run.npz --json
    cynosure simulate box:n=40,d=2 --dynamics rescaled --V V.csv --time 20
    cynosure simulate sphere:n=32,d=3 --dynamics sphere --beta 4 --causal
    cynosure simulate a.csv --attention softmax:beta=5 --attention hardmax:A=A.csv
    """
    from .models import Clock, Model

    claim(plot, (".png", ".svg", ".pdf"), force)
    claim(movie, (".gif", ".mp4"), force)
    claim(out, (".npz",), force)
    claim(report, (".html",), force)
    voice: Voice = ctx.obj
    inputs = Inputs.read(tokens, A, Q=Q, K=K, V=V)
    voice.taken(inputs)
    model = Model(
        dynamics=dynamics or ["pure_attention"],
        attention=attention or [],
        alpha=alpha,
        beta=beta,
        matrices={name: values for name, (_, values) in inputs.matrices.items()},
        causal=causal,
        summed=sum_heads,
        span=span,
    ).build(inputs.z.shape[1])
    clock = Clock(layers, time, stepper, save_every, deadline)
    trajectory = _run(voice, inputs, model, clock, device)
    voice.status(trajectory)
    if movie is not None:  # first: it alone can fail, for want of ffmpeg
        _save_movie(voice, trajectory, movie)
    if plot is not None:
        _save_plot(trajectory, plot)
    if out is not None:
        trajectory.save(out)
    if report is not None:
        _save_report(voice, report, inputs, trajectory)
    files = [path for path in (out, plot, movie, report) if path is not None]
    _show_run(voice, inputs, trajectory, files, json_)
    if trajectory.status.failed:
        raise typer.Exit(1)


def limit(
    ctx: typer.Context,
    tokens: TokensArg,
    alpha: AlphaOption = "0.5",
    A: MatrixOption = None,
    exact: Annotated[
        bool,
        typer.Option("--exact", help="Every decision in rationals; golden:NAME starts from them."),
    ] = False,
    full: Annotated[
        bool, typer.Option("--full", help="Show rationals to the last digit, however long.")
    ] = False,
    max_layers: Annotated[
        int, typer.Option(help="Give up on undecided tokens after these.")
    ] = 100_000,
    deadline: DeadlineOption = None,
    device: DeviceOption = "cpu",
    out: Annotated[Path | None, typer.Option(help="All tokens as .csv or .json.")] = None,
    report: ReportOption = None,
    json_: JsonOption = False,
    force: ForceOption = False,
) -> None:
    """Limits at infinite depth, each with the rule that proves it.

    A token whose limit is not proved is called undecided, never converged (exit code 0).

    \b
    Rules in .csv and JSON: leader leads; S follows a leader; fixed stays where it
    is; G tied between tokens that stay; H, T tied for ever, by hulls or by signs.
    cynosure limit tokens.csv --alpha 1/2 --json
    cynosure limit tokens.csv --report page.html
    cynosure limit golden:G1 --alpha 1/2 --exact
    """
    from ..dynamics import PureAttention

    claim(out, (".csv", ".json"), force)
    claim(report, (".html",), force)
    if exact and device != "cpu":
        raise ValueError("--device: --exact decides everything in integers, on the CPU; drop one")
    voice: Voice = ctx.obj
    inputs = Inputs.read(tokens, A)
    voice.taken(inputs)
    dynamics = PureAttention(inputs.attention(), step(alpha))
    start = inputs.rational if exact and inputs.rational is not None else inputs.on(device)
    li = _prove(voice, start, dynamics, exact, max_layers, deadline)
    voice.note(limit_sentence(li))
    for caution in inputs.cautions():
        voice.note(f"note: {caution}")

    def whole() -> str:
        return document(voice, inputs, limit_data(li, str(dynamics.exact_alpha)))

    if out is not None:
        as_json = out.suffix.lower() == ".json"
        text = whole() if as_json else limit_table(li, len(inputs.z), rule_codes(li)).to_csv()
        write_text(out, text)
        voice.note(f"wrote {out}")
    if report is not None:
        from .models import Clock

        trajectory = _run(voice, inputs, dynamics, Clock())
        _save_report(voice, report, inputs, trajectory, li)
        voice.note(f"wrote {report}")
    if json_:
        show_json(whole())
    else:
        shown = limit_table(li, rows_shown(inputs.z), rules_in_words(li), full=full)
        print_table(shown, len(inputs.z), spare=("gap", "settled", "leads"))
        if not full and (digits := long_rationals(li)):
            voice.note(f"≈ stands for a rational of up to {digits} characters; --full shows it.")


def check(
    ctx: typer.Context,
    tokens: Annotated[
        str, typer.Argument(metavar="TOKENS|RUN.npz", help="Tokens as in simulate, or a saved run.")
    ],
    alpha: Annotated[str | None, typer.Option(help="Step [0.5]; a saved run has its own.")] = None,
    layers: Annotated[
        int | None, typer.Option(help="Layers [30]; a saved run has its own.")
    ] = None,
    A: MatrixOption = None,
    only: Annotated[str | None, typer.Option(help="Some statements, such as B1,B5.")] = None,
    all_: Annotated[
        bool, typer.Option("--all", help="Also the statements that do not apply, and why.")
    ] = False,
    report: ReportOption = None,
    json_: JsonOption = False,
    force: ForceOption = False,
) -> None:
    """The theorems B1-B41 on a run: does each apply, hold, by how much.

    Exit code 1 when a statement applies and does not hold. Those that do not apply are counted;
    --all, or naming them in --only, shows them. With -v: the hypotheses that fail and
    the witness of each statement.

    \b
    cynosure check gaussian:n=50,d=3 --alpha 1
    cynosure check run.npz --json
    cynosure check run.npz --report page.html
    """
    from ..theorems import check as judge

    claim(report, (".html",), force)
    voice: Voice = ctx.obj
    wanted = _statements(only)
    inputs, trajectory = _run_or_saved(voice, tokens, alpha, layers, A)
    voice.status(trajectory)
    with voice.working("checking the theorems"):
        checks = judge(trajectory) if wanted is None else judge(trajectory, only=wanted)
    if report is not None:
        _save_report(voice, report, inputs, trajectory, checks=checks)
        voice.note(f"wrote {report}")
    failed = [c for c in checks if c.applies and not c.holds]
    if json_:
        from ..drawing.report import jsonable

        show_json(document(voice, inputs, {"holds": not failed, "checks": jsonable(checks)}))
    else:
        asked = [c for c in checks if all_ or wanted is not None or c.applies]
        show(check_text(asked))
        if len(asked) < len(checks):
            show(f"... {len(checks) - len(asked)} more do not apply (--all says why)")
    for c in checks:
        voice.detail(check_detail(c))
    apply = sum(c.applies for c in checks)
    voice.note(f"{apply} of {len(checks)} statements apply, {apply - len(failed)} of those hold.")
    if failed:
        raise typer.Exit(1)


# --- computing -----------------------------------------------------------------------------------


def _run(
    voice: Voice, inputs: Inputs, dynamics: Dynamics, clock: Clock, device: str = "cpu"
) -> Trajectory:
    """The run on the device; what is shown and saved of it is back here."""
    from dataclasses import replace

    from ..simulation.loop import simulate as run_layers

    until, unit, how = clock.of(dynamics)
    n, d = inputs.z.shape
    voice.detail(f"{n} tokens, d = {d}, {until} {unit} of {type(dynamics).__name__}")
    start = inputs.on(device)
    with voice.bar(until, f" {unit}") as move:
        run = run_layers(dynamics, start, throw=False, progress=move, **how)
    return run if start is inputs.z else replace(run, z=run.values)


def _run_or_saved(
    voice: Voice, tokens: str, alpha: str | None, layers: int | None, A: str | None
) -> tuple[Inputs, Trajectory]:
    """A saved run as it is; hardmax layers on tokens."""
    from ..dynamics import PureAttention
    from ..simulation.trajectory import load
    from .models import Clock

    if is_run(tokens):
        if (alpha, layers, A) != (None, None, None):
            raise ValueError(f"{tokens} is a saved run: drop --alpha, --layers and --A")
        trajectory = load(tokens)
        return Inputs(tokens, trajectory.values[0]), trajectory
    inputs = Inputs.read(tokens, A)
    voice.taken(inputs)
    dynamics = PureAttention(inputs.attention(), step(alpha or "0.5"))
    return inputs, _run(voice, inputs, dynamics, Clock(layers))


def _prove(
    voice: Voice,
    z0: Any,
    dynamics: PureAttention,
    exact: bool,
    max_layers: int,
    deadline: float | None,
) -> Limit:
    from ..analysis.limits import limit as prove

    with voice.bar(None, " layers") as move:
        tell = None if move is None else lambda k, open_: move(k, f"{open_} undecided")
        return prove(
            dynamics, z0, exact=exact, max_layers=max_layers, deadline=deadline, progress=tell
        )


def _statements(only: str | None) -> list[str] | None:
    """B1,B5 as labels that exist; None for all."""
    from ..theorems import THEOREMS

    if only is None:
        return None
    wanted = [name.strip().upper() for name in only.split(",")]
    unknown = sorted(set(wanted) - set(THEOREMS))
    if unknown:
        raise ValueError(f"--only: no statement {unknown[0]!r} (there are {listed(THEOREMS)})")
    return wanted


# --- results -------------------------------------------------------------------------------------


def _show_run(
    voice: Voice, inputs: Inputs, trajectory: Trajectory, files: list[Path], json_: bool
) -> None:
    for path in files:
        voice.note(f"wrote {path}")
    end = recognised(trajectory)
    if end is not None:
        voice.note(f"limit: {end}")
    if json_:
        data = trajectory_data(trajectory, end) | {"files": [str(path) for path in files]}
        show_json(document(voice, inputs, data))
    else:
        table = trajectory_table(trajectory, end, rows_shown(inputs.z))
        print_table(table, len(inputs.z), spare=("settled",))


def _save_plot(trajectory: Trajectory, path: Path) -> None:
    from .._files import write_atomically
    from ..drawing import plot

    show = None
    if trajectory.stepper is None:  # layers; of a flow some times
        saved = set(trajectory.t.tolist())
        show = tuple(sorted({k for k in (0, 1, 2, 5) if k in saved} | {int(trajectory.t[-1])}))
    figure: Any = plot.layers(trajectory, show=show)
    kind = path.suffix.lower().lstrip(".")
    write_atomically(path, lambda stream: figure.savefig(stream, format=kind, dpi=150))


def _save_movie(voice: Voice, trajectory: Trajectory, path: Path) -> None:
    from ..drawing.movie import movie

    with voice.bar(None, " frames") as move:
        movie(trajectory, path, progress=move)


def _save_report(
    voice: Voice,
    path: Path,
    inputs: Inputs,
    trajectory: Trajectory,
    limit: Limit | None = None,
    checks: Iterable[Check] | None = None,
) -> None:
    from dataclasses import replace

    from ..drawing.run_report import report

    page = report(trajectory, limit, checks, command=voice.command, inputs=inputs.describe())
    source = "stdin" if inputs.source == "-" else inputs.source
    replace(page, title=f"{source}: {page.title}").save(path)
