"""Pairs of answers of which one is better for a reason that can be checked."""
