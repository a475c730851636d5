"""Verifiable instructions: their wordings, their checks, and texts that follow them."""
