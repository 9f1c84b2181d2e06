"""SEED RL: scalable reinforcement learning with batched central inference.

Importing the package never imports TensorFlow, so that actors start in a moment and stay small.
"""

__version__ = "0.1.0"
