"""Worlds, what happened in them, and their lorebooks: stored, searched, read and written.

Take it away and prompts have no events; the retriever that asked its store stays in `app.rag`.
"""

from typing import Final

COMMANDS: Final = {
    "worlds": "Load worlds into a running gateway.",
}
"""What the module `commands` adds to `atropos-envs`, with the first sentence of its help."""
