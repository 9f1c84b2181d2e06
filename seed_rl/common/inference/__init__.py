"""Central inference: from the calls of actors to actions and complete unrolls."""
