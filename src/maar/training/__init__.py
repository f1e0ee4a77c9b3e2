"""Training: the run's folder, checkpoints, and one loop for every method."""
