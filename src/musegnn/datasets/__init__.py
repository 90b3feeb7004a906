"""Named graphs and raw files -> `GraphSource`."""
