"""Tasks that ask for tool calls: generated from built-in APIs, or read from data sets."""
