"""Talking to the characters that policies play."""
