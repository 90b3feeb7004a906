"""From below and from above, the largest eigenvalue of a subgraph's two Laplacians."""
