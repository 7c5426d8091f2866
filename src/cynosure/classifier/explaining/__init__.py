"""Why a text got its label: leaders, words that decided, words to delete, spans."""
