"""A small tree of files: look, search, make, change, move, copy and delete."""
