"""What a request may be: its bounds, its schema, who may send it, and how it is refused."""
