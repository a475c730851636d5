"""Parsing of tool calls in all supported formats, and comparison with expected calls."""
