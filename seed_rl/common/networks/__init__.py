"""Building blocks of networks, and the networks made of them."""
