"""Layers, encoders and the actor-critic networks built from them."""
