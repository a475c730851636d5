"""Stay in character, judged against a character sheet."""
