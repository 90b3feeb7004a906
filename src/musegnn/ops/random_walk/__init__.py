"""The nodes that independent random walks visit."""
