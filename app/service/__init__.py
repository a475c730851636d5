"""What the service does: hand out tasks, step through episodes, score groups. Every effect is behind a port."""
