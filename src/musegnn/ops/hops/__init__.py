"""Distances from the seeds."""
