"""Sums along several relations at once, and a step on what they come to."""
