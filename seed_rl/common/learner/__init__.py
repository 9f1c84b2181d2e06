"""The learner: algorithms, training steps, devices, and the loop that drives them."""
