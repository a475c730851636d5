"""Open Reward Standard: sessions whose turns are calls of tools."""
