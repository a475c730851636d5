"""Clients of inference servers: whoever answers tasks."""
