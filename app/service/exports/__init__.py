"""Exports of stored groups as training data: rows of several shapes, as JSON lines or Parquet."""
