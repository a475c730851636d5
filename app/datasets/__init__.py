"""Data sets: where they lie, which rows of them are used, and how a row is read."""
