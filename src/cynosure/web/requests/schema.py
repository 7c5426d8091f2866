"""What a request may hold: types and bounds, refused by name before any work begins."""

from __future__ import annotations

import abc
from typing import Annotated, Any, Literal, final

from pydantic import BaseModel, ConfigDict, Field, model_validator

from .bounds import BOUNDS

_N, _D = int(BOUNDS["tokens"]), int(BOUNDS["dimension"])
# Digits are bounded: "1e999999999" is a short text and a number nobody can hold.
_RATIONAL = r"^[+-]?\d{1,40}(/\d{1,40}|(\.\d{1,40})?([eE][+-]?\d{1,2})?)$"

Real = Annotated[float, Field(allow_inf_nan=False)]
Number = Real | Annotated[str, Field(pattern=_RATIONAL, max_length=90)]
Row = Annotated[list[Number], Field(min_length=1, max_length=_D)]
Tokens = Annotated[list[Row], Field(min_length=1, max_length=_N)]
Matrix = Annotated[
    list[Annotated[list[Real], Field(min_length=1, max_length=_D)]],
    Field(min_length=1, max_length=_D),
]
Name = Annotated[str, Field(min_length=1, max_length=100)]
Text = Annotated[str, Field(max_length=int(BOUNDS["text_characters"]))]
Sentence = Annotated[str, Field(min_length=1, max_length=int(BOUNDS["sentence_characters"]))]
Index = Annotated[int, Field(ge=0, lt=_N)]
Layers = Annotated[int, Field(ge=0, le=int(BOUNDS["layers"]))]
Seconds = Annotated[float, Field(gt=0, le=float(BOUNDS["deadline_seconds"]))]

_STRICT = ConfigDict(extra="forbid", frozen=True)
_TOKENS = Field(description="Tokens as rows; numbers, or rationals as text: '1/3'.")
_ALPHA = Field(0.5, description="Step, positive; 0.1 is a float, '1/10' the rational.")
_FORM = Field(None, description="A of the scores <A z_i, z_j>, d rows; the identity if absent.")
_DYNAMICS = Field(
    None,
    description="{'name': one of /dynamics, field: value, ...}; an attention is such an object "
    "too. Absent: hardmax layers with alpha and A.",
)
_TIME = Field(None, gt=0, le=float(BOUNDS["time"]), description="Of a flow.")


class _Tokens(BaseModel, abc.ABC):
    """Whatever is about tokens: rows of one length, not too many."""

    model_config = _STRICT
    tokens: Tokens = _TOKENS

    @model_validator(mode="after")
    def rectangular(self) -> Any:
        n, widths = len(self.tokens), sorted({len(row) for row in self.tokens})
        if len(widths) > 1:
            raise ValueError(f"tokens: expected rows of one length, got lengths {widths[:4]}")
        if n * widths[0] > (most := BOUNDS["numbers"]):
            raise ValueError(f"tokens: at most {most} numbers in all, got {n} x {widths[0]}")
        return self


@final
class Limit(_Tokens):
    """The proved limit of every token under hardmax layers."""

    alpha: Number = _ALPHA
    A: Matrix | None = _FORM
    exact: bool = Field(False, description="Every decision in rationals.")
    max_layers: Annotated[int, Field(ge=0, le=100_000)] = 100_000
    followed: bool = Field(False, description="The sets C_i of layer 0 too.")
    brief: bool = Field(False, description="Without rule, words, margin, exact_points: faster.")
    deadline: Seconds = Field(5.0, description="Seconds; then tokens are undecided.")


@final
class Probe(_Tokens):
    """Where one more token would end, or whom it would follow, for every point of a grid."""

    alpha: Number = _ALPHA
    A: Matrix | None = _FORM
    corner: Annotated[list[Real], Field(min_length=2, max_length=2)]
    opposite: Annotated[list[Real], Field(min_length=2, max_length=2)]
    side: Annotated[int, Field(ge=2, le=100)] = 40
    kind: Literal["basins", "cells"] = Field(
        "basins", description="cells: the leader of the largest score there, a power diagram (B18)."
    )


@final
class Simulate(_Tokens):
    """Layers or a flow from given tokens."""

    dynamics: dict[str, Any] | None = _DYNAMICS
    alpha: Number | None = None
    A: Matrix | None = _FORM
    layers: Layers | None = Field(None, description="Of layers; 30 if absent.")
    time: float | None = _TIME
    save_every: Annotated[int, Field(ge=1, le=10_000)] = 1
    stepper: dict[str, Any] | None = Field(None, description="{'name': 'rk4', 'dt': 0.1}")
    recognise: bool = Field(False, description="Say what a flow tends to.")
    format: Literal["json", "npz", "html"] = Field("json", description="npz, or a report page.")
    deadline: Seconds = 10.0


@final
class Check(_Tokens):
    """The theorems on a run."""

    dynamics: dict[str, Any] | None = _DYNAMICS
    alpha: Number | None = None
    A: Matrix | None = _FORM
    layers: Annotated[int, Field(ge=0, le=1000)] | None = None
    time: float | None = _TIME
    only: Annotated[list[Name], Field(max_length=100)] | None = Field(None, examples=[["B1"]])


@final
class Shadow(_Tokens):
    """How long a softmax run provably keeps its clusters and follows hardmax."""

    dynamics: dict[str, Any] | None = _DYNAMICS
    layers: Annotated[int, Field(ge=0, le=1000)] = 200
    deadline: Seconds = Field(3.0, description="Seconds; then no more layers are followed.")


@final
class Control(_Tokens):
    """A matrix A under which the given tokens lead, or under which one does not."""

    leaders: Annotated[list[Index], Field(min_length=1, max_length=100)] | None = None
    remove: Index | None = None
    A: Matrix | None = _FORM
    condition: Annotated[float, Field(gt=1, le=1e8)] = 1e6


@final
class Predict(BaseModel):
    """Labels of texts."""

    model_config = _STRICT
    texts: Annotated[list[Text], Field(min_length=1, max_length=int(BOUNDS["texts"]))]
    model: Name | None = Field(None, description="One of /models; the first if absent.")


@final
class Explain(BaseModel):
    """Why a text gets its label, perhaps with words deleted."""

    model_config = _STRICT
    text: Text
    model: Name | None = None
    label: Name | None = None
    struck: Annotated[list[Name], Field(max_length=2000)] = Field(
        [], description="Words deleted everywhere, with every n-gram that contains them."
    )


@final
class Trace(BaseModel):
    """A sentence traced through a transformer."""

    model_config = _STRICT
    text: Sentence
    transformer: Name | None = None
    words: bool = Field(False, description="Sub-words grouped into words.")
    layer: Annotated[int, Field(ge=0, le=1000)] = 0
    head: Annotated[int, Field(ge=0, le=1000)] = 0


@final
class Heads(BaseModel):
    """Every head and its hypotheses, or one iterated with frozen and silent controls."""

    model_config = _STRICT
    transformer: Name | None = None
    layer: Annotated[int, Field(ge=0, le=1000)] | None = None
    head: Annotated[int, Field(ge=0, le=1000)] | None = None
    iterate: Annotated[int, Field(ge=1, le=int(BOUNDS["iterations"]))] | None = None
    text: Sentence | None = None


@final
class Run(BaseModel):
    """Parameters of an experiment: numbers, switches and rows of numbers; no names of files."""

    model_config = _STRICT
    quick: bool = Field(True, description="Start from the quick parameters.")
    params: dict[Name, Any] = {}
