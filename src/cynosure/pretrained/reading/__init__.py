"""Texts and pictures passing through a model: traces, surveys, layers iterated."""
