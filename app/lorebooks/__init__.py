"""Lorebooks: which of their entries a conversation calls up. Pure; other tools' lorebooks are read in `app.sheets`."""
