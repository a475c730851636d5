"""Data sets: finding them, choosing rows, reading rows."""
