"""Where data sets come from: a hub id or a folder."""
