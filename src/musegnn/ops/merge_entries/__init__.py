"""Unordered entries of a block of rows -> sorted CSR rows without repeats."""
