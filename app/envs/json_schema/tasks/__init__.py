"""Records made from facts: schema, right value, source text, and broken versions of their JSON."""
