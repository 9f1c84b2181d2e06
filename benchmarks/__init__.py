"""The programs behind every figure in the documentation."""
