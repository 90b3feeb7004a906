"""One proximal step of a quadratic energy on a graph."""
