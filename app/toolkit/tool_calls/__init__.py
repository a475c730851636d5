"""Tool calls in replies, read in whatever format a model writes them, and held against what was expected."""
