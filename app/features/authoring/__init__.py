"""Authors write sheets and scenes in the browser; each saved text is a revision, and the newest is in force.

Take it away and the folder of character sheets alone is served.
"""

from typing import Final

COMMANDS: Final = {
    "sheets pull": "Download the sheets, scenes and lorebooks of a gateway to a folder.",
    "sheets push": "Upload the sheets and scenes of a folder to a gateway: all or none.",
}
"""What the module `commands` adds to `atropos-envs`, with the first sentence of its help."""
