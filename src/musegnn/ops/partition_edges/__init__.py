"""Edges -> keys of both directions, grouped by bucket of rows."""
