"""Small environments and servers for tests of this package and of environments built for it."""
