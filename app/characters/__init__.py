"""Character sheets: what one NPC is, knows and hides, and the scenes it is put into. Pure but for reading files."""
