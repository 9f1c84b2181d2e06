"""Native libraries: their C++ sources and their loader."""
