"""Sources of data sets: a hub id or a folder."""
