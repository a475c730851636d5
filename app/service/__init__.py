"""What the service does: hand out tasks, step through episodes, score groups. Effects go through the store and ports."""
