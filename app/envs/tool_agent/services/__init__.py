"""Simulated services with a state that a model changes by calling tools: pure, recomputed from the transcript."""
