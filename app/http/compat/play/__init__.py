"""The OpenAI-compatible door through which people talk to characters."""
