"""Tasks that ask for tool calls: written from APIs of ours, or read from data sets in the shapes of others."""
