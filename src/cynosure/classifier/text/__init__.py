"""Texts as the model reads them: inputs of any kind, data sets, terms, a vocabulary."""
