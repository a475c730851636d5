"""Say which of two answers is better."""
