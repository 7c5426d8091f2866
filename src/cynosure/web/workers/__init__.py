"""The processes that compute answers, and the server's side of them."""
