"""Studies: many runs of sampled configurations, their table and plots."""
