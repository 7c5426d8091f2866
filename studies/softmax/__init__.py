"""Softmax flows: polytopes, hyperplanes, Boolean attention."""
