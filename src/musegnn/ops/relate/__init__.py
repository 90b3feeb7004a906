"""The relations of a subgraph's entries: looked up in the graph, and taken apart."""
