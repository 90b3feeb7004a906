"""Pages about runs: what a run folder says, as one file for a browser."""
