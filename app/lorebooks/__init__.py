"""Lorebooks: which of their entries what was said calls up. Pure; imports of cards are in `app.sheets`."""
