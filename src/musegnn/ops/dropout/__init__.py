"""Dropout, with ReLU before it or without, in one pass."""
