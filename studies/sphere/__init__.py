"""Attention on the sphere: one cluster, sooner or later."""
