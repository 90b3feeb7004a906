"""The nodes of largest personalized PageRank, for each seed, by forward push."""
