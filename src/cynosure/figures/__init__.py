"""Figures of arXiv 2407.01602, and reviews explained."""
