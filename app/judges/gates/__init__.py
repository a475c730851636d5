"""Gates: deterministic checks that run before any judge."""
