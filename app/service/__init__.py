"""The verbs: hand out tasks, step through episodes, score groups. Pure decisions; every effect is behind a port."""
