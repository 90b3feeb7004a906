"""Differences to the neighbors, each counted the less the larger it is."""
