"""Options: typed dataclasses, and the flags generated from them."""
