"""Two ways to fit a model: a convex fit placed on the plane, or gradient descent."""
