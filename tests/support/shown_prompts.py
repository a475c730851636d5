"""What a judge was shown, read back from the messages of a request."""

import json
import re
from dataclasses import dataclass

from app.domain.scores import LEVELS
from tests.support.chat_server import Received

_PARTS = re.compile(r"RUBRIC\n(.*)\n\nCONTEXT(.*)\n\nREFERENCES(.*)\n\nCANDIDATES\n(.*)", re.DOTALL)
_FIELD = re.compile(r"([A-Za-z_]\w*): (.*)")


@dataclass(frozen=True)
class ShownPrompt:
    rubric: str
    context: str
    references: str
    texts: dict[str, str]
    """By letter, in the order of presentation."""
    hints: dict[str, str]

    @property
    def criteria(self) -> dict[str, str]:
        """Descriptions by name."""
        listed = self.rubric.partition("criteria:\n")[2].partition("\ndefects:\n")[0].split("\n")
        found = (_FIELD.fullmatch(line) for line in listed)
        return {field[1]: decode(field[2]) for field in found if field is not None}


def decode(text: str) -> str:
    return str(json.loads(text)) if text.startswith('"') else text


def read_prompt(user: str) -> ShownPrompt:
    parts = _PARTS.fullmatch(user)
    assert parts is not None, user
    texts, hints = {}, {}
    for line in parts[4].split("\n"):
        letter, _, rest = line.partition(": ")
        texts[letter], end = json.JSONDecoder().raw_decode(rest)
        if rest[end:]:
            hints[letter] = rest[end:]
    return ShownPrompt(parts[1], parts[2].strip("\n"), parts[3].strip("\n"), texts, hints)


def shown_to(received: Received) -> ShownPrompt:
    return read_prompt(received.messages[1]["content"])


def find_wanted_replies(rules: str) -> tuple[str, ...]:
    """The kinds of replies that a judge is to write, where it is not asked to compare any."""
    return tuple(kind for kind in LEVELS if rules.startswith("You write replies") and f'- "{kind}"' in rules)
