"""DeepMind Lab: first-person 3D tasks (Beattie et al. 2016), and the 30 levels of DMLab-30."""
