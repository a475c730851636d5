"""Character cards and lorebooks of other tools: read into sheets and books, and written back without loss."""
