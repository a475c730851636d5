"""Follow constraints that code can verify."""
