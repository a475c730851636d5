"""The composition root: the one place where concrete classes meet."""
