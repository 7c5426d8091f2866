"""`cynosure simulate | limit | check`: runs, proved limits, theorems on one's own tokens."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import options, output
from .helping import arg, opt
from .inputs import Inputs, claim, is_run, listed, step
from .terminal import show, show_json

if TYPE_CHECKING:
    from ..analysis.limits import Limit
    from ..dynamics import Dynamics
    from ..simulation.trajectory import Trajectory
    from ..theorems import Check
    from .models import Clock


def simulate(
    ctx: typer.Context,
    tokens: options.TokensArg,
    dynamics: options.DynamicsOption = None,
    attention: options.AttentionOption = None,
    alpha: options.StepOption = None,
    beta: options.BetaOption = None,
    A: options.MatrixOption = None,
    Q: options.QOption = None,
    K: options.KOption = None,
    V: options.VOption = None,
    causal: options.CausalOption = False,
    sum_heads: options.SumHeadsOption = False,
    layers: options.LayersOption = None,
    time: options.TimeOption = None,
    span: options.SpanOption = None,
    stepper: options.StepperOption = None,
    save_every: options.SaveEveryOption = 1,
    deadline: options.DeadlineOption = None,
    device: options.DeviceOption = "cpu",
    plot: options.PlotOption = None,
    movie: options.MovieOption = None,
    out: options.RunOption = None,
    report: options.ReportOption = None,
    json_: options.JsonOption = False,
    force: options.ForceOption = False,
) -> None:
    """Run tokens through layers or a flow.

    Shows where they are, who leads and what they tend to.

    \b
    cynosure simulate tokens.csv --alpha 0.5 --layers 30 --movie layers.gif
    cynosure simulate tokens.csv --report page.html
    cynosure simulate gaussian:n=1000,d=3 --A A.csv --out run.npz --json
    cynosure simulate box:n=40,d=2 --dynamics rescaled --V V.csv --time 20
    cynosure simulate sphere:n=32,d=3 --dynamics sphere --beta 4 --causal
    cynosure simulate a.csv --attention softmax:beta=5 --attention hardmax:A=A.csv
    cynosure simulate run.npz --layers 100 --out longer.npz   (100 layers more)
    """
    from .models import Clock, Model

    claim(plot, (".png", ".svg", ".pdf"), force)
    claim(movie, (".gif",), force)
    claim(out, (".npz",), force)
    claim(report, (".html",), force)
    voice: output.Voice = ctx.obj
    clock = Clock(layers, time, stepper, save_every, deadline)
    if is_run(tokens):
        own = (dynamics, attention, alpha, beta, A, Q, K, V, span, stepper)
        if any(own) or causal or sum_heads or device != "cpu":
            raise ValueError(
                f"{tokens} is a saved run, which has its own model: give --layers or --time"
            )
        inputs, trajectory = _continued(voice, tokens, clock)
    else:
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
        trajectory = _run(voice, inputs, model, clock, device)
    voice.status(trajectory)
    if movie is not None:  # first: it takes longest
        from ..drawing.movie import movie as film

        with voice.bar(None, " frames") as move:
            film(trajectory, movie, progress=move)
    if plot is not None:
        _save_plot(trajectory, plot)
    if out is not None:
        trajectory.save(out)
    if report is not None:
        _save_report(voice, report, inputs, trajectory)
    files = [str(path) for path in (out, plot, movie, report) if path is not None]
    for path in files:
        voice.note(f"wrote {path}")
    end = output.recognised(trajectory)
    if end is not None:
        voice.note(f"limit: {end}")
    if json_:
        data = output.trajectory_data(trajectory, end) | {"files": files}
        show_json(output.document(voice, inputs, data))
    else:
        table = output.trajectory_table(trajectory, end, output.rows_shown(inputs.z))
        output.print_table(table, len(inputs.z), spare=("settled",))
    if trajectory.status.failed:
        raise typer.Exit(1)


def limit(
    ctx: typer.Context,
    tokens: options.TokensArg,
    alpha: options.AlphaOption = "0.5",
    A: options.MatrixOption = None,
    exact: Annotated[
        bool, opt("Every decision in rationals; golden:NAME starts from them.", "--exact")
    ] = False,
    full: Annotated[bool, opt("Show rationals to the last digit, however long.", "--full")] = False,
    max_layers: Annotated[int, opt("Give up on undecided tokens after these.")] = 100_000,
    deadline: options.DeadlineOption = None,
    device: options.DeviceOption = "cpu",
    out: Annotated[Path | None, opt("All tokens as .csv or .json.")] = None,
    report: options.ReportOption = None,
    json_: options.JsonOption = False,
    force: options.ForceOption = False,
) -> None:
    """Find the limit of every token, with its proof.

    A token whose limit is not proved is called undecided, never converged (exit code 0).

    \b
    Rules in .csv and JSON: leader leads; S follows a leader; fixed stays where it
    is; G tied, moves to a fixed mean; H, T always tied, by hulls or by signs.
    cynosure limit tokens.csv --alpha 1/2 --json
    cynosure limit tokens.csv --report page.html
    cynosure limit golden:G1 --alpha 1/2 --exact
    """
    from .._deadline import Deadline
    from ..analysis.findings import findings
    from ..analysis.limits import limit as prove
    from ..dynamics import PureAttention
    from .models import Clock

    claim(out, (".csv", ".json"), force)
    claim(report, (".html",), force)
    if exact and device != "cpu":
        raise ValueError("--device: --exact decides everything in integers, on the CPU; drop one")
    voice: output.Voice = ctx.obj
    inputs = Inputs.read(tokens, A)
    voice.taken(inputs)
    dynamics = PureAttention(inputs.attention(), step(alpha))
    start = inputs.rational if exact and inputs.rational is not None else inputs.on(device)
    until = Deadline(deadline)  # of the proof, the run and the report together
    how: dict[str, Any] = {"exact": exact, "max_layers": max_layers, "deadline": until.left}
    with voice.bar(None, " layers") as move:
        tell = None if move is None else lambda k, open_: move(k, f"{open_} undecided")
        li = prove(dynamics, start, progress=tell, **how)
    voice.note(output.limit_sentence(li))
    for caution in inputs.cautions():
        voice.note(f"note: {caution}")

    def whole() -> str:
        return output.document(voice, inputs, output.limit_data(li, str(dynamics.exact_alpha)))

    if out is not None:
        as_json = out.suffix.lower() == ".json"
        table = output.limit_table(li, len(inputs.z), codes=True)
        output.write_text(out, whole() if as_json else table.to_csv())
        voice.note(f"wrote {out}")
    if report is not None:
        trajectory = _run(voice, inputs, dynamics, Clock(deadline=until.left))
        found = findings(trajectory)
        found.deadline = until
        if inputs.rational is None or not exact:  # else floats may have other limits
            found.limit = li
        _save_report(voice, report, inputs, trajectory, li)
        voice.note(f"wrote {report}")
    if json_:
        show_json(whole())
    else:
        shown = output.limit_table(li, output.rows_shown(inputs.z), full=full)
        output.print_table(shown, len(inputs.z), spare=("gap", "settled", "leads"))
        if not full and (digits := output.long_rationals(li)):
            voice.note(f"≈ stands for a rational of up to {digits} characters; --full shows it.")


def check(
    ctx: typer.Context,
    tokens: Annotated[str, arg("Tokens as in simulate, or a saved run.", of="TOKENS|RUN.npz")],
    alpha: Annotated[str | None, opt("Step [0.5]; a saved run has its own.")] = None,
    layers: Annotated[int | None, opt("Layers [30]; a saved run has its own.")] = None,
    A: options.MatrixOption = None,
    only: Annotated[str | None, opt("Some statements, such as B1,B5.")] = None,
    all_: Annotated[bool, opt("Also the statements that do not apply, and why.", "--all")] = False,
    report: options.ReportOption = None,
    json_: options.JsonOption = False,
    force: options.ForceOption = False,
) -> None:
    """Check the theorems on a run.

    For each of B1 to B42: whether it applies, whether it holds, and by how much.

    Exit code 1 when a statement applies and does not hold. Those that do not apply are counted;
    --all, or naming them in --only, shows them. With -v: the hypotheses that fail and
    the witness of each statement.

    \b
    cynosure check gaussian:n=50,d=3 --alpha 1
    cynosure check run.npz --json
    cynosure check run.npz --report page.html
    """
    from ..dynamics import PureAttention
    from ..simulation.saving import load
    from ..theorems import check as judge
    from .models import Clock

    claim(report, (".html",), force)
    voice: output.Voice = ctx.obj
    wanted = _statements(only)
    if is_run(tokens):
        if (alpha, layers, A) != (None, None, None):
            raise ValueError(f"{tokens} is a saved run: drop --alpha, --layers and --A")
        trajectory = load(tokens)
        inputs = Inputs(tokens, trajectory.values[0])
    else:
        inputs = Inputs.read(tokens, A)
        voice.taken(inputs)
        dynamics = PureAttention(inputs.attention(), step(alpha or "0.5"))
        trajectory = _run(voice, inputs, dynamics, Clock(layers))
    voice.status(trajectory)
    with voice.working("checking the theorems"):
        checks = judge(trajectory, only=wanted)
    if report is not None:
        _save_report(voice, report, inputs, trajectory, checks=checks)
        voice.note(f"wrote {report}")
    failed = [c for c in checks if c.applies and not c.holds]
    if json_:
        show_json(output.document(voice, inputs, {"holds": not failed, "checks": checks}))
    else:
        asked = [c for c in checks if all_ or wanted is not None or c.applies]
        show(output.check_text(asked))
        if len(asked) < len(checks):
            show(f"... {len(checks) - len(asked)} more do not apply (--all says why)")
    for c in checks:
        voice.detail(output.check_detail(c))
    apply = sum(c.applies for c in checks)
    voice.note(f"{apply} of {len(checks)} statements apply, {apply - len(failed)} of those hold.")
    if not apply:
        voice.note(_why_none(trajectory, checks))
    if failed:
        raise typer.Exit(1)


def _run(
    voice: output.Voice, inputs: Inputs, dynamics: Dynamics, clock: Clock, device: str = "cpu"
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


def _continued(voice: output.Voice, path: str, clock: Clock) -> tuple[Inputs, Trajectory]:
    """A saved run and what comes after it."""
    from ..simulation.saving import load

    run = load(path)
    if len(run.z.shape) != 3:
        raise ValueError(f"{path}: a batch of runs; save one of them, run.select(b).save(...)")
    until, unit, how = clock.of(run.made_by)
    how.pop("stepper", None)
    with voice.bar(until, f" {unit}") as move:
        tell = None if move is None else lambda at: move(at - run.t[-1].item())
        return Inputs(path, run.values[0]), run.continued(progress=tell, **how)


def _why_none(trajectory: Trajectory, checks: list[Check]) -> str:
    """Why no statement applies, the commonest reasons first."""
    from collections import Counter

    if trajectory.dynamics is None:
        return (
            "none applies: the run does not say what made it. Dynamics of your own are not saved: "
            "check such a run in Python, cy.check(run), before it is saved"
        )
    failed = Counter(next(h.name for h in c.hypotheses if not h.holds) for c in checks)
    reasons = "; ".join(f"{name} ({count})" for name, count in failed.most_common(3))
    return f"none applies to {type(trajectory.dynamics).__name__}: they need {reasons}"


def _statements(only: str | None) -> list[str] | None:
    """B1,B5 as labels that exist; None for all."""
    from ..theorems import THEOREMS

    if only is None:
        return None
    known = THEOREMS.installed()
    names = [name.strip() for name in only.split(",")]
    wanted = [known.named(n).name if ":" in n else n if n in known else n.upper() for n in names]
    unknown = [name for name, label in zip(names, wanted) if label not in known]
    if unknown:
        there = f"{listed(THEOREMS)}; or write module:name"
        raise ValueError(f"--only: no statement {unknown[0]!r} (there are {there})")
    return wanted


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


def _save_report(
    voice: output.Voice,
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
