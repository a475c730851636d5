"""What the service does: hand out tasks, step through episodes, score groups. Effects go through `store` and ports."""
