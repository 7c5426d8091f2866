"""Compiled loops of the classifier: words of a text, which of them are read, rays of the plane."""
