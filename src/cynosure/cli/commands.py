"""The commands: each builds the library's objects from its options and shows the result."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .. import __version__
from .inputs import Given, claim, is_run, listed, settings, step
from .output import (
    Voice,
    check_detail,
    check_table,
    document,
    limit_data,
    limit_sentence,
    limit_table,
    print_table,
    recognised,
    rows_shown,
    trajectory_data,
    trajectory_table,
)

if TYPE_CHECKING:
    from ..drawing.report import Report
    from ..dynamics import Dynamics
    from ..simulation.steppers import Stepper
    from ..simulation.trajectory import Trajectory

__all__ = ["app"]

COMMON = "Everywhere: -q/--quiet, -v/--verbose, --debug, --config FILE.toml (see cynosure --help)."

app = typer.Typer(
    name="cynosure",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)

TokensArg = Annotated[
    str,
    typer.Argument(
        metavar="TOKENS",
        help="File with one token per line (.csv .tsv .txt .npy .npz), - for CSV on stdin, or a "
        "named configuration: gaussian:n=100,d=2,seed=0  figure2:3  golden:G1.",
    ),
]
AlphaOption = Annotated[
    str,
    typer.Option(
        "--alpha",
        help="Step, positive. 0.1 means the float nearest to 0.1, 1/10 the rational.",
    ),
]
MatrixOption = Annotated[
    str | None,
    typer.Option(
        "--A", metavar="FILE", help="Matrix A of the scores <A z_i, z_j>; identity if absent."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]
ForceOption = Annotated[bool, typer.Option("--force", help="Overwrite existing outputs.")]


def _version(asked: bool) -> None:
    if asked:
        print(f"cynosure {__version__}")
        raise typer.Exit


def _configure(ctx: typer.Context, path: Path | None) -> Path | None:
    """Flags from a TOML file: top-level keys for `cynosure`, one table per command."""
    if path is None or ctx.resilient_parsing:
        return path
    import tomllib

    try:
        data = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise ValueError(f"--config {path}: no such file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"--config {path}: not TOML ({error})") from None
    commands = ctx.command.commands  # type: ignore[attr-defined]
    tables = {k: v for k, v in data.items() if isinstance(v, dict)}
    defaults = _flags(path, ctx.command, {k: v for k, v in data.items() if k not in tables})
    for name, table in tables.items():
        if name not in commands:
            raise ValueError(f"--config {path}: no command [{name}] (there are {listed(commands)})")
        defaults[name] = _flags(path, commands[name], table)
    ctx.default_map = defaults
    return path


def _flags(path: Path, command: Any, table: dict[str, Any]) -> dict[str, Any]:
    """Keys as they are spelt on the command line -> parameter names and values."""
    names = {o.lstrip("-"): p.name for p in command.params for o in (*p.opts, p.name)}
    names |= {key.replace("-", "_"): name for key, name in names.items()}
    unknown = [key for key in table if key not in names]
    if unknown:
        raise ValueError(
            f"--config {path}: unknown key {unknown[0]!r} for {command.name} "
            f"(known: {listed(p.opts[0].lstrip('-') for p in command.params)})"
        )
    several = {p.name for p in command.params if getattr(p, "multiple", False)}
    out: dict[str, Any] = {}
    for key, value in table.items():
        out[names[key]] = value if isinstance(value, bool | list) else str(value)
        if names[key] in several and not isinstance(value, list):
            out[names[key]] = [str(value)]
    return out


@app.callback()
def common(
    ctx: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            callback=_configure,
            is_eager=True,
            metavar="FILE.toml",
            help="Flags from a file: one [table] per command; flags typed here win.",
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only data and errors.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Say more on stderr.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Self-attention as a dynamical system: trajectories, leaders, clusters, proved limits.

    \b
    cynosure demo                                      one page with everything
    cynosure simulate tokens.csv --alpha 0.5 --layers 30 --plot f.png --out run.npz
    cynosure simulate tokens.csv --dynamics rescaled_flow --time 20
    cynosure limit tokens.csv --alpha 1/2 --exact      limits with a proof
    cynosure check tokens.csv                          the theorems on this run
    cynosure run figure2                               a figure of the paper
    """
    ctx.obj = Voice(quiet, verbose, ctx.obj or "cynosure")


@app.command(epilog=COMMON)
def simulate(
    ctx: typer.Context,
    tokens: TokensArg,
    dynamics: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[:KEY=VALUE,...]",
            help="In layers: pure_attention, unnormalized_attention, value_attention, "
            "feed_forward, jump_chain, noisy_sphere; given twice, they take turns. In time: "
            "attention_flow, unnormalized_flow, euclidean_flow, rescaled_flow, leading_flow, "
            "heads_flow, sphere_flow, pre_norm_flow, unnormalized_sphere_flow; given twice, see "
            "--span. The beginning of a name will do. "
            "[pure_attention]",
        ),
    ] = None,
    attention: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[:KEY=VALUE,...]",
            help="hardmax, softmax, localmax or sinkhorn; given twice: heads, each with its own "
            "A=FILE and V=FILE, averaged. [that of the dynamics]",
        ),
    ] = None,
    alpha: Annotated[
        str | None,
        typer.Option("--alpha", help="Step [0.5]. 0.1 is the float nearest to 0.1, 1/10 exact."),
    ] = None,
    beta: Annotated[float | None, typer.Option(help="Inverse temperature of softmax [1].")] = None,
    A: MatrixOption = None,
    Q: Annotated[str | None, typer.Option("--Q", metavar="FILE", help="With K: A = K^T Q.")] = None,
    K: Annotated[str | None, typer.Option("--K", metavar="FILE", help="With Q: A = K^T Q.")] = None,
    V: Annotated[str | None, typer.Option("--V", metavar="FILE", help="Value matrix [I].")] = None,
    causal: Annotated[
        bool, typer.Option("--causal", help="Tokens look at earlier tokens only.")
    ] = False,
    sum_heads: Annotated[
        bool, typer.Option("--sum-heads", help="Sum the heads instead of averaging them.")
    ] = False,
    layers: Annotated[
        int | None, typer.Option(help="Number of layers [30]; layer 0 is the input.")
    ] = None,
    time: Annotated[float | None, typer.Option(help="End of a flow that starts at 0 [10].")] = None,
    span: Annotated[
        float | None, typer.Option(help="Several flows: the time each lasts in its turn [1].")
    ] = None,
    stepper: Annotated[
        str | None,
        typer.Option(
            metavar="NAME[:KEY=VALUE,...]",
            help="Of a flow: adaptive:rtol=1e-6,atol=1e-9, rk4:dt=0.05, euler or "
            "exponential_euler. [adaptive]",
        ),
    ] = None,
    save_every: Annotated[int, typer.Option(help="Keep every so many layers (or times).")] = 1,
    plot: Annotated[Path | None, typer.Option(help="Panels by layer (.png .svg .pdf).")] = None,
    movie: Annotated[Path | None, typer.Option(help="The layers as a movie (.gif .mp4).")] = None,
    out: Annotated[Path | None, typer.Option(help="The whole trajectory (.npz).")] = None,
    json_: JsonOption = False,
    force: ForceOption = False,
) -> None:
    """Run layers or a flow: where tokens are, who leads, what they tend to.

    \b
    cynosure simulate tokens.csv --alpha 0.5 --layers 30 --plot layers.png --movie layers.gif
    cynosure simulate gaussian:n=1000,d=3 --A A.csv --out run.npz --json
    cynosure simulate box:n=40,d=2 --dynamics rescaled --V V.csv --beta 2 --time 20 --out run.npz
    cynosure simulate sphere:n=32,d=3 --dynamics sphere --beta 4 --causal --stepper rk4:dt=0.1
    cynosure simulate tokens.csv --attention softmax:beta=5 --attention hardmax:A=A.csv
    """
    from .models import Model, read_stepper

    for path, kinds in ((plot, _PICTURES), (movie, (".gif", ".mp4")), (out, (".npz",))):
        claim(path, kinds, force)
    voice: Voice = ctx.obj
    given = Given.read(tokens, A, Q=Q, K=K, V=V)
    matrices = {name: values for name, (_, values) in given.matrices.items()}
    model = Model(
        dynamics or ["pure_attention"],
        attention or [],
        alpha,
        beta,
        matrices,
        causal,
        sum_heads,
        span,
    ).build(given.z.shape[1])
    tr = _simulate(voice, given, model, layers, time, read_stepper(stepper), save_every)
    voice.status(tr)
    if movie is not None:  # first: it alone can fail, for want of ffmpeg
        _movie(voice, tr, movie)
    if plot is not None:
        _plot(tr, plot)
    if out is not None:
        tr.save(out)
    for path in filter(None, (movie, plot, out)):
        voice.note(f"wrote {path}")
    found = recognised(tr)
    if found is not None:
        voice.note(f"limit: {found}")
    if json_:
        files = [str(path) for path in (out, plot, movie) if path is not None]
        print(document(voice, given, trajectory_data(tr, found) | {"files": files}))
    else:
        print_table(trajectory_table(tr, found, rows_shown(given.z)), len(given.z))
    if tr.status.failed:
        raise typer.Exit(1)


@app.command(epilog=COMMON)
def limit(
    ctx: typer.Context,
    tokens: TokensArg,
    alpha: AlphaOption = "0.5",
    A: MatrixOption = None,
    exact: Annotated[
        bool,
        typer.Option("--exact", help="Every decision in rationals; golden:NAME starts from them."),
    ] = False,
    max_layers: Annotated[
        int, typer.Option(help="Give up on undecided tokens after these.")
    ] = 100_000,
    out: Annotated[Path | None, typer.Option(help="All tokens as .csv or .json.")] = None,
    json_: JsonOption = False,
    force: ForceOption = False,
) -> None:
    """Limits at infinite depth, each with the rule that proves it.

    A token whose limit is not proved is called undecided, never converged (exit code 0).

    \b
    Rules: leader; S follows a leader; fixed, G ties between tokens that stay; H, T frozen ties.
    cynosure limit tokens.csv --alpha 1/2 --json
    cynosure limit golden:G1 --alpha 1/2 --exact
    """
    from ..analysis.limits import limit as prove
    from ..dynamics import PureAttention

    claim(out, (".csv", ".json"), force)
    voice: Voice = ctx.obj
    given = Given.read(tokens, A)
    dynamics = PureAttention(given.attention(), step(alpha))
    z0 = given.rational if exact and given.rational is not None else given.z
    with voice.bar(None, " layers") as move:
        follow = None if move is None else lambda k, open_: move(k, f"{open_} undecided")
        li = prove(dynamics, z0, exact=exact, max_layers=max_layers, progress=follow)
    voice.note(limit_sentence(li))
    for caution in given.cautions():
        voice.note(f"note: {caution}")

    def whole() -> str:
        return document(voice, given, limit_data(li, str(dynamics.exact_alpha)))

    if out is not None:
        json_file = out.suffix.lower() == ".json"
        _write(out, whole() if json_file else limit_table(li, len(given.z)).to_csv())
        voice.note(f"wrote {out}")
    if json_:
        print(whole())
    else:
        print_table(limit_table(li, rows_shown(given.z)), len(given.z))


@app.command(epilog=COMMON)
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
    json_: JsonOption = False,
) -> None:
    """The theorems B1-B34 on a run: does each apply, hold, by how much.

    Exit code 1 when a statement applies and does not hold. With -v: the hypotheses that fail and
    the witness of each statement.

    \b
    cynosure check gaussian:n=50,d=3 --alpha 1
    cynosure check run.npz --json
    """
    from ..theorems import THEOREMS
    from ..theorems import check as judge

    voice: Voice = ctx.obj
    wanted = None if only is None else [name.strip().upper() for name in only.split(",")]
    unknown = sorted(set(wanted or ()) - set(THEOREMS))
    if unknown:
        raise ValueError(f"--only: no statement {unknown[0]!r} (there are {listed(THEOREMS)})")
    if is_run(tokens):
        from ..simulation.trajectory import load

        if (alpha, layers, A) != (None, None, None):
            raise ValueError(f"{tokens} is a saved run: drop --alpha, --layers and --A")
        tr = load(tokens)
        given = Given(tokens, tr.values[0])
    else:
        from ..dynamics import PureAttention

        given = Given.read(tokens, A)
        model = PureAttention(given.attention(), step(alpha or "0.5"))
        tr = _simulate(voice, given, model, layers, None, None, 1)
    voice.status(tr)
    checks = judge(tr) if wanted is None else judge(tr, only=wanted)
    failed = [c for c in checks if c.applies and not c.holds]
    if json_:
        from ..drawing.report import jsonable

        print(document(voice, given, {"holds": not failed, "checks": jsonable(checks)}))
    else:
        print_table(check_table(checks), len(checks))
    for c in checks:
        voice.detail(check_detail(c))
    apply = sum(c.applies for c in checks)
    voice.note(f"{apply} of {len(checks)} statements apply, {apply - len(failed)} of those hold.")
    if failed:
        raise typer.Exit(1)


@app.command(epilog=COMMON)
def run(
    ctx: typer.Context,
    name: Annotated[str | None, typer.Argument(help="Experiment; --list shows them.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Seconds instead of minutes.")] = False,
    list_: Annotated[bool, typer.Option("--list", help="Names and titles.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="Folder for report.html, report.json and data/ [NAME].")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a parameter.")
    ] = None,
    redraw: Annotated[
        bool, typer.Option("--redraw", help="Report and figures again, from what was measured.")
    ] = False,
    json_: JsonOption = False,
    force: ForceOption = False,
) -> None:
    """An experiment or figure of the papers: report, tables, figures.

    What long experiments measure is kept in the folder's measured/: a run that was interrupted
    goes on where it stopped, and --redraw draws a finished one again; --force measures anew.

    \b
    cynosure run --list
    cynosure run figure2 --set seed=7 --set alpha=1 --out figure2-seed7
    cynosure run basins --redraw
    """
    from dataclasses import replace

    from ..experiments import available, chapters, experiment, keeping

    if list_:
        from ..drawing.report import Table

        rows = tuple((key, module.TITLE) for key, module in available().items())
        print(Table("", ("name", "what it shows"), rows).to_text())
        return
    if name is None:
        known = sorted(one for names in chapters().values() for one in names)
        raise ValueError(f"run: no name given (there are {listed(known)})")
    chosen = experiment(name)
    out = Path(name) if out is None else out
    measured, voice = _measured(out, force, redraw), ctx.obj
    start = chosen.QUICK if quick else chosen.Params()
    params = replace(start, **settings(start, set_ or []))
    with voice.bar(1.0, "") as move, keeping(measured) as kept:
        report = chosen.run(params, move)
    if kept.reused:
        total = len(kept.reused) + len(kept.made)
        voice.note(f"{len(kept.reused)} of {total} measurements were in {measured} already")
    report = replace(report, command=voice.command.replace(" --redraw", ""))
    report.save(out / "report.json")
    report.save_data(out / "data")
    report.save(out / "report.html")
    _finish(voice, report, out / "report.html", json_)


@app.command(epilog=COMMON)
def demo(
    ctx: typer.Context,
    out: Annotated[str, typer.Option(help="Folder for report.html; replaced if there.")] = "demo",
    json_: JsonOption = False,
) -> None:
    """The main job, offline, as one page: figures, limits, checks, a movie."""
    from .demo import demo as tell

    voice: Voice = ctx.obj
    with voice.bar(1.0, "") as move:
        report = tell(Path(out), move)
    _finish(voice, report, Path(out) / "report.html", json_)


@app.command(epilog=COMMON)
def info(json_: JsonOption = False) -> None:
    """Versions, extras, devices and ffmpeg: what a bug report needs."""
    from .environment import environment

    data = environment()
    if json_:
        print(json.dumps(data, indent=1))
        return
    for group, values in data.items():
        print(f"{group}: {values}" if not isinstance(values, dict) else f"{group}:")
        for key, value in values.items() if isinstance(values, dict) else ():
            print(f"  {key:<16} {value}")


def _measured(out: Path, force: bool, redraw: bool) -> Path:
    """The folder of what is measured, emptied by --force; refuse a run that would lose a report."""
    from ..experiments import forget

    folder, page = out / "measured", out / "report.html"
    if force and redraw:
        raise ValueError("run: --force measures anew and --redraw does not; choose one")
    if redraw and not any(folder.glob("*.npz")):
        raise ValueError(f"--redraw: nothing measured is kept in {folder}; use --force instead")
    if page.exists() and not force and not redraw:
        raise ValueError(
            f"{page} exists (use --force to overwrite it, --redraw to draw it again from what was "
            "measured)"
        )
    if force:
        forget(folder)
    return folder


_PICTURES = (".png", ".svg", ".pdf")


def _simulate(
    voice: Voice,
    given: Given,
    dynamics: Dynamics,
    layers: int | None,
    time: float | None,
    stepper: Stepper | None,
    save_every: int,
) -> Trajectory:
    """Layers (30 unless given) of a LayerMap, or a flow to time (10 unless given)."""
    from ..dynamics import Flow
    from ..simulation.loop import simulate as walk

    name = type(dynamics).__name__
    clock: dict[str, Any]
    if isinstance(dynamics, Flow):
        if layers is not None:
            raise ValueError(f"--layers: {name} runs in time; say --time")
        clock = {"time": 10.0 if time is None else time, "stepper": stepper}
    else:
        if time is not None or stepper is not None:
            raise ValueError(f"--time, --stepper: {name} runs in layers; say --layers")
        clock = {"layers": 30 if layers is None else layers}
    end, unit = (clock["layers"], "layers") if "layers" in clock else (clock["time"], "of time")
    n, d = given.z.shape
    voice.detail(f"{n} tokens, d = {d}, {end} {unit} of {name}")
    with voice.bar(end, f" {unit}") as move:
        return walk(dynamics, given.z, save_every=save_every, throw=False, progress=move, **clock)


def _plot(tr: Trajectory, path: Path) -> None:
    from .._files import write_atomically
    from ..drawing import plot

    show = None
    if tr.stepper is None:  # layers; of a flow some times
        saved = set(tr.t.tolist())
        show = tuple(sorted({k for k in (0, 1, 2, 5) if k in saved} | {int(tr.t[-1])}))
    figure: Any = plot.layers(tr, show=show)
    kind = path.suffix.lower().lstrip(".")
    write_atomically(path, lambda stream: figure.savefig(stream, format=kind, dpi=150))


def _movie(voice: Voice, tr: Trajectory, path: Path) -> None:
    from ..drawing.movie import movie

    with voice.bar(None, " frames") as move:
        movie(tr, path, progress=move)


def _write(path: Path, text: str) -> None:
    from .._files import write_atomically

    write_atomically(path, lambda stream: stream.write(text.encode()))


def _finish(voice: Voice, report: Report, page: Path, json_: bool) -> None:
    """Say where the page is; fail when a check failed."""
    print(report.to_json() if json_ else page)
    voice.note(report.verdict)
    for name, failed in report.failures:
        voice.note(f"FAILED {failed.theorem} on {name}: {failed.statement}")
    if report.failures:
        raise typer.Exit(1)
