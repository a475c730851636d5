"""People's judgements of groups and replies: a queue of what to label, and what was said.

Take it away and no judge is compared with people.
"""

from typing import Final

COMMANDS: Final = {
    "labels": "Import choices that people made, such as preferred replies.",
    "judges agreement": "Show how far a judge agrees with people, beside how far people agree with one another.",
}
"""What the module `commands` adds to `atropos-envs`, with the first sentence of its help."""
