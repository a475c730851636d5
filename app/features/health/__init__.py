"""Watches runs: whether judges' scores drift, policies fall silent or trends break, and says so.

Take it away and runs are never held.
"""

from typing import Final

COMMANDS: Final = {
    "runs health": "Show what has changed in a run: figures with alarm limits, alarms, and the cost of this audit.",
    "runs release": "Release a run's alarms, so that it hands out tasks again.",
}
"""What the module `commands` adds to `atropos-envs`, with the first sentence of its help."""
