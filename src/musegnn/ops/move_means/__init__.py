"""Means move towards new embeddings."""
