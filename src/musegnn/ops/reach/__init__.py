"""Nodes and up to `fanout` neighbors of each: one hop of a k-hop neighborhood."""
