"""Programs that run in the Pythons of other projects."""
