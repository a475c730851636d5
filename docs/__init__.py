"""Documentation, and the program that writes the parts of it that would otherwise go stale."""
