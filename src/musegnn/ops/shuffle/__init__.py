"""A random order of node ids, in place."""
