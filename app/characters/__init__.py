"""Character sheets of NPCs, and the scenes they play in. Pure except for reading files."""
