"""MuJoCo: continuous control with Gymnasium, and small toy environments."""
