"""Reach a number with arithmetic over given numbers."""
