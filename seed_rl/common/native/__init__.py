"""Native libraries: their C++ sources, and how they are loaded."""
