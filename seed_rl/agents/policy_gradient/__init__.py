"""The configurable on-policy agent (Andrychowicz et al. 2020) with central inference."""
