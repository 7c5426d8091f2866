"""Time and peak memory of a text in a model of a billion parameters, by trace and by survey.

Random weights in the shape of Llama 3.2 1B: 16 layers, d = 2048, 32 heads, 8 of keys. `trace` holds
P of every head; `survey` sees its rows go by. The peer is the library's own eager attention with
output_attentions=True, which holds P too; where P would not fit, it is not run.

    python benchmarks/long_texts.py --tokens 128 --what trace
    python benchmarks/long_texts.py --tokens 4096 --what survey
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import transformers

from cynosure.pretrained import load_transformer

SHAPE = {
    "vocab_size": 128_256,
    "hidden_size": 2048,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 8192,
    "max_position_embeddings": 8192,
    "head_dim": 64,
}


def peak() -> float:
    """The largest memory of this process so far, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def measured(do: Callable[[], Any]) -> dict[str, float]:
    start, used = time.perf_counter(), time.process_time()
    do()
    wall, cpu = time.perf_counter() - start, time.process_time() - used
    return {"seconds": round(wall, 1), "cpu_seconds": round(cpu, 1), "peak_GB": round(peak(), 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--what", choices=("trace", "survey", "library"), default="trace")
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**SHAPE, num_hidden_layers=asked.layers)
    model = transformers.AutoModel.from_config(config, attn_implementation="eager").eval()
    m = load_transformer(model)
    ids = np.random.default_rng(0).integers(0, 128_000, asked.tokens)
    before = round(peak(), 2)

    def library() -> None:
        with torch.no_grad():
            model(torch.tensor(ids)[None], output_attentions=True, output_hidden_states=True)

    run = {"trace": lambda: m.trace(ids), "survey": lambda: m.survey(ids), "library": library}
    found = measured(run[asked.what])
    count = sum(p.numel() for p in model.parameters())
    print(json.dumps({**vars(asked), "parameters": count, "peak_before_GB": before, **found}))


if __name__ == "__main__":
    main()
