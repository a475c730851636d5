"""Stored groups and labels as rows of training data: JSON lines or Parquet.

Take it away and stored groups are read one by one.
"""

from typing import Final

COMMANDS: Final = {
    "export": "Export stored rollouts as training data.",
    "tasks": "Export environments' tasks as a prompt data set.",
}
"""What the module `commands` adds to `atropos-envs`, with the first sentence of its help."""
