"""Real transformers as attention dynamics: their heads, their trajectories, their layers iterated.

The real model is hooked, and its own modules are called with the arguments the model itself gives
them; nothing of it is written again here. torch and transformers are imported on first use.
"""

from __future__ import annotations

from .caches import trace_of_cache
from .corpora import open_surveys, survey_texts
from .families import ADAPTERS, Adapter
from .head_facts import facts, hypothesis_counts
from .heads import HYPOTHESES, Head, Leading, flow_of
from .loading import load_transformer
from .positions import QueryKeyNorm
from .surveys import Survey
from .traces import Trace, attention_table, cosines, leaders_by_layer, sentence_table, settling
from .transformer import Transformer

__all__ = [
    "ADAPTERS",
    "Adapter",
    "HYPOTHESES",
    "Head",
    "Leading",
    "QueryKeyNorm",
    "Survey",
    "Trace",
    "Transformer",
    "attention_table",
    "cosines",
    "facts",
    "flow_of",
    "hypothesis_counts",
    "leaders_by_layer",
    "load_transformer",
    "open_surveys",
    "sentence_table",
    "settling",
    "survey_texts",
    "trace_of_cache",
]
