"""What every door shares: problem+json, limits, keys, request ids."""
