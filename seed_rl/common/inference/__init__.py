"""Central inference: turns actors' calls into actions and complete unrolls."""
