"""Training data out of what is stored: rows of several shapes, as JSON lines or Parquet."""
