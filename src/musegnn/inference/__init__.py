"""What a trained model says: of every node of the graph, and into files."""
