"""Watches runs: whether judges' scores drift, policies fall silent or trends break, and says so.

Take it away and runs are never held.
"""
