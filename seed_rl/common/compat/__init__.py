"""Implementations of functions that only programs written for the original use."""
