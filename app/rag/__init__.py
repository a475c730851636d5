"""Retrieval of passages for prompts."""
