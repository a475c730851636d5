"""Lorebooks: activation of entries by a conversation. Pure; import of other formats is in `app.characters.cards`."""
