"""Atropos 0.4.0: its trajectory API, for unmodified trainers and environments."""
