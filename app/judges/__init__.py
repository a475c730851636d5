"""Judges: chat models, the offline judge, the gates before them and the panel over them."""
