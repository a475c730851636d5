"""Tool call formats, one per file."""
