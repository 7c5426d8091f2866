"""Real transformers read as attention dynamics."""
