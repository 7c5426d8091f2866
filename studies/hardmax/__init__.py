"""Hardmax layers: leaders, limits, and what changes them."""
