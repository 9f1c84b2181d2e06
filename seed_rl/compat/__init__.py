"""What only programs written for the original need; the main road imports nothing of it.

They import the modules of the original: facades, which re-export what is here.
"""
