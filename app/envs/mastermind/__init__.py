"""Guess a hidden code from feedback."""
