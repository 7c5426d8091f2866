"""Arguments and options with their help texts: those several commands share, those of simulate."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from .helping import arg, completing, opt

TokensArg = Annotated[
    str,
    arg(
        "File with one token per line (.csv .tsv .txt .npy .npz), - for CSV on stdin, or a "
        "named configuration: gaussian:n=100,d=2,seed=0  figure2:3  golden:G1.",
        of="TOKENS",
    ),
]
AlphaOption = Annotated[
    str, opt("Step, positive. 0.1 means the float nearest to 0.1, 1/10 the rational.")
]
DeviceOption = Annotated[
    str, opt("cpu, or cuda: the sets are the same, large hardmax runs are faster there.", more=True)
]
MatrixOption = Annotated[
    str | None, opt("Matrix A of the scores <A z_i, z_j>; identity if absent.", "--A", of="FILE")
]
ReportOption = Annotated[
    Path | None, opt("One page with pictures, limits and theorem checks (.html).")
]
DeadlineOption = Annotated[
    float | None, opt("End after so many seconds with what there is.", of="SECONDS", more=True)
]
JsonOption = Annotated[bool, opt("One JSON document on stdout.", "--json")]
ForceOption = Annotated[bool, opt("Overwrite existing outputs.", "--force", more=True)]

# --- of `cynosure simulate` ---------------------------------------------------------------------

DynamicsOption = Annotated[
    list[str] | None,
    opt(
        "In layers: pure_attention, unnormalized_attention, value_attention, "
        "feed_forward, jump_chain, noisy_sphere; given twice, they alternate. In time: "
        "attention_flow, unnormalized_flow, euclidean_flow, rescaled_flow, leading_flow, "
        "heads_flow, sphere_flow, pre_norm_flow, peri_norm_flow, mixed_norm_flow, ngpt_flow, "
        "unnormalized_sphere_flow; given twice, see --span. The beginning of a name will do. "
        "[pure_attention]",
        of="NAME[:KEY=VALUE,...]",
        autocompletion=completing("dynamics", "DYNAMICS"),
    ),
]
AttentionOption = Annotated[
    list[str] | None,
    opt(
        "hardmax, softmax, localmax, sinkhorn, or rotary:attention=softmax,base=10000 "
        "(positions); given twice: heads, each with its own A=FILE and V=FILE, averaged. "
        "[that of the dynamics]",
        of="NAME[:KEY=VALUE,...]",
        autocompletion=completing("attention", "ATTENTIONS"),
    ),
]
StepOption = Annotated[str | None, opt("Step [0.5]. 0.1 is the float nearest to 0.1, 1/10 exact.")]
BetaOption = Annotated[float | None, opt("Inverse temperature of softmax [1].", more=True)]
QOption = Annotated[str | None, opt("With K: A = K^T Q.", "--Q", of="FILE", more=True)]
KOption = Annotated[str | None, opt("With Q: A = K^T Q.", "--K", of="FILE", more=True)]
VOption = Annotated[str | None, opt("Value matrix [I].", "--V", of="FILE", more=True)]
CausalOption = Annotated[bool, opt("Tokens look at earlier tokens only.", "--causal", more=True)]
SumHeadsOption = Annotated[
    bool, opt("Sum the heads instead of averaging them.", "--sum-heads", more=True)
]
LayersOption = Annotated[int | None, opt("Number of layers [30]; layer 0 is the input.")]
TimeOption = Annotated[float | None, opt("End of a flow that starts at 0 [10].")]
SpanOption = Annotated[
    float | None, opt("Several flows: the time each lasts in its turn [1].", more=True)
]
StepperOption = Annotated[
    str | None,
    opt(
        "Of a flow: adaptive:rtol=1e-6,atol=1e-9, rk4:dt=0.05 or euler. [adaptive]",
        of="NAME[:KEY=VALUE,...]",
        more=True,
        autocompletion=completing("simulation", "STEPPERS"),
    ),
]
SaveEveryOption = Annotated[int, opt("Keep every so many layers (or times).", more=True)]
PlotOption = Annotated[Path | None, opt("Panels by layer (.png .svg .pdf).")]
MovieOption = Annotated[Path | None, opt("The layers as a movie (.gif).", more=True)]
RunOption = Annotated[Path | None, opt("The whole trajectory (.npz).")]
