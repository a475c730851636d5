"""Clients of OpenAI-compatible servers, for policies and judges."""
