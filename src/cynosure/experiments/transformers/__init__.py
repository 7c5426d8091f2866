"""Real transformers as such systems."""
