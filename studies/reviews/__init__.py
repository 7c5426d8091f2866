"""Film reviews: the classifier and the paper's study."""
