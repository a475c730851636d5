"""What all commands share: where they print, and the client with which they ask a running gateway."""

from typing import Final

ADVANCED: Final = "Advanced"
"""The panel in the help for commands and options that are seldom needed. Here, since nothing is imported with it."""
