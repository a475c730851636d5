"""Verifiable instructions: what is asked of a text, whether the text does it, and a text that does."""
