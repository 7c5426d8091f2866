"""The answers: one library call each, JSON in and JSON out; they run in worker processes."""
