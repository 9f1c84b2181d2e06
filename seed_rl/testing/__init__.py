"""Small environments and servers for tests, here and in projects built on this package."""
