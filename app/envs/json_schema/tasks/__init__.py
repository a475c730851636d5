"""Records made from facts: their schema, their one right value, what is told of them, and ways to break their text."""
