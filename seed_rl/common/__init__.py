"""What every agent shares: actor loop, central inference, unrolls, learner, configuration."""
