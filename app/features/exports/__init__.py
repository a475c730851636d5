"""Stored groups and labels as rows of training data: JSON lines or Parquet.

Take it away and stored groups are read one by one.
"""
