"""Deterministic checks that run before any judge: `registry` lists them, `reading` is what they look at."""
