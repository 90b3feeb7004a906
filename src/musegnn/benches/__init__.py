"""The paper's tables and figures, one command each: peers and MuseGNN on the same graph, split and budget."""
