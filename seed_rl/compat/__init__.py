"""Code that only programs written for the original need; nothing else imports it.

They import the modules of the original: facades, which re-export what is here.
"""
