"""Chapters, pictures and tables of what was read."""
