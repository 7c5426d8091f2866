"""How much one request may ask for; `/api/v1/bounds` states these numbers."""

from __future__ import annotations

BOUNDS: dict[str, int | float] = {
    "body_bytes": 1 << 20,
    "arrival_seconds": 30.0,  # for a request to arrive whole
    "nesting": 64,  # of lists and objects in a body
    "tokens": 5000,
    "dimension": 64,
    "numbers": 100_000,  # n * d
    "layers": 10_000,
    "time": 1000.0,
    "saved_numbers": 3_000_000,  # states * n * d of an answer
    "texts": 1000,
    "text_characters": 100_000,
    "sentence_characters": 4000,
    "iterations": 1000,
    "deadline_seconds": 20.0,
    "trace_seconds": 120.0,
    "experiment_seconds": 3600.0,
    "waiting_requests": 512,
    "waiting_seconds": 60.0,  # before a request is begun
    "held_bytes": 256 << 20,  # of answers that clients have not taken yet, all together
    "experiments_at_once": 2,
    "runs_kept": 50,
}
