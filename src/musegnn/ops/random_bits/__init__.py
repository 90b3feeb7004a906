"""Counter-based randomness: the number at any place of a stream, computed without the others."""
