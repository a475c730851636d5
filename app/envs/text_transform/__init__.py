"""Carry out a chain of operations on a text."""
