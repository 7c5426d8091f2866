"""Arguments and options with their help texts: those several commands share, those of simulate."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = [
    "AlphaOption",
    "AttentionOption",
    "BetaOption",
    "CausalOption",
    "DeadlineOption",
    "DeviceOption",
    "DynamicsOption",
    "ForceOption",
    "JsonOption",
    "KOption",
    "LayersOption",
    "MatrixOption",
    "MovieOption",
    "PlotOption",
    "QOption",
    "ReportOption",
    "RunOption",
    "SaveEveryOption",
    "SpanOption",
    "StepOption",
    "StepperOption",
    "SumHeadsOption",
    "TimeOption",
    "TokensArg",
    "VOption",
]

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
DeviceOption = Annotated[
    str,
    typer.Option(
        "--device",
        help="cpu, or cuda: the sets are the same, large hardmax runs are faster there.",
    ),
]
MatrixOption = Annotated[
    str | None,
    typer.Option(
        "--A", metavar="FILE", help="Matrix A of the scores <A z_i, z_j>; identity if absent."
    ),
]
ReportOption = Annotated[
    Path | None,
    typer.Option(help="One page with pictures, limits and theorem checks (.html)."),
]
DeadlineOption = Annotated[
    float | None,
    typer.Option(metavar="SECONDS", help="End after so many seconds with what there is."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]
ForceOption = Annotated[bool, typer.Option("--force", help="Overwrite existing outputs.")]

# --- of `cynosure simulate` ---------------------------------------------------------------------

DynamicsOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME[:KEY=VALUE,...]",
        help="In layers: pure_attention, unnormalized_attention, value_attention, "
        "feed_forward, jump_chain, noisy_sphere; given twice, they take turns. In time: "
        "attention_flow, unnormalized_flow, euclidean_flow, rescaled_flow, leading_flow, "
        "heads_flow, sphere_flow, pre_norm_flow, peri_norm_flow, mixed_norm_flow, ngpt_flow, "
        "unnormalized_sphere_flow; given twice, see --span. The beginning of a name will do. "
        "[pure_attention]",
    ),
]
AttentionOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME[:KEY=VALUE,...]",
        help="hardmax, softmax, localmax, sinkhorn, or rotary:attention=softmax,base=10000 "
        "(positions); given twice: heads, each with its own A=FILE and V=FILE, averaged. "
        "[that of the dynamics]",
    ),
]
StepOption = Annotated[
    str | None,
    typer.Option("--alpha", help="Step [0.5]. 0.1 is the float nearest to 0.1, 1/10 exact."),
]
BetaOption = Annotated[float | None, typer.Option(help="Inverse temperature of softmax [1].")]
QOption = Annotated[str | None, typer.Option("--Q", metavar="FILE", help="With K: A = K^T Q.")]
KOption = Annotated[str | None, typer.Option("--K", metavar="FILE", help="With Q: A = K^T Q.")]
VOption = Annotated[str | None, typer.Option("--V", metavar="FILE", help="Value matrix [I].")]
CausalOption = Annotated[bool, typer.Option("--causal", help="Tokens look at earlier tokens only.")]
SumHeadsOption = Annotated[
    bool, typer.Option("--sum-heads", help="Sum the heads instead of averaging them.")
]
LayersOption = Annotated[
    int | None, typer.Option(help="Number of layers [30]; layer 0 is the input.")
]
TimeOption = Annotated[float | None, typer.Option(help="End of a flow that starts at 0 [10].")]
SpanOption = Annotated[
    float | None, typer.Option(help="Several flows: the time each lasts in its turn [1].")
]
StepperOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME[:KEY=VALUE,...]",
        help="Of a flow: adaptive:rtol=1e-6,atol=1e-9, rk4:dt=0.05, euler or "
        "exponential_euler. [adaptive]",
    ),
]
SaveEveryOption = Annotated[int, typer.Option(help="Keep every so many layers (or times).")]
PlotOption = Annotated[Path | None, typer.Option(help="Panels by layer (.png .svg .pdf).")]
MovieOption = Annotated[Path | None, typer.Option(help="The layers as a movie (.gif .mp4).")]
RunOption = Annotated[Path | None, typer.Option(help="The whole trajectory (.npz).")]
