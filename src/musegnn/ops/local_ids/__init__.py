"""Positions of ids in a sample's list of nodes."""
