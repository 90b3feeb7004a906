"""For each node up to `fanout` of its neighbors, without replacement."""
