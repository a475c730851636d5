"""Count letters in words."""
