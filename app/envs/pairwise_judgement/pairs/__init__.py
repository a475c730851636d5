"""Two answers to the same thing, of which one is better for a reason that can be pointed at."""
