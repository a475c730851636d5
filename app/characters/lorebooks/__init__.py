"""Lorebooks: which entries a conversation calls up. Pure; other tools' lorebooks are read in `app.characters.cards`."""
