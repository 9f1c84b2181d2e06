"""The parts of the on-policy agent; gin chooses and configures them."""
