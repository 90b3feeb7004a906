"""Algorithm 1 as a run that can be stopped at any moment: settings, batches, loss, checkpoints."""
