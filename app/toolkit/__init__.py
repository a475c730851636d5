"""What environments share: answers, tool calls, mathematics, procedural tasks, templates, conformance checks."""
