"""How good a model and its explanations are, and a page about one."""
