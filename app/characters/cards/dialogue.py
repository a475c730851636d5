"""Example dialogue of cards: blocks that begin with <START>, lines that begin with the speaker."""

import re
from dataclasses import dataclass
from typing import Final

_START: Final = re.compile(r"^[ \t]*<START>[ \t]*$", re.IGNORECASE | re.MULTILINE)
MOST: Final = 4000
"""Characters of a line or a reply."""


@dataclass(frozen=True)
class ExampleDialogue:
    """Exchanges of a line and a reply, and the remaining text with its speakers renamed to They and You, as in the
    prompt."""

    exchanges: tuple[tuple[str, str], ...]
    rest: str


def parse_dialogue(text: str, names: tuple[str, ...]) -> ExampleDialogue:
    """`names`: other names of the character besides `{{char}}`. A block is parsed as a whole or left as text."""
    character = "|".join([r"\{\{char\}\}", "<bot>", "<char>", *map(re.escape, filter(None, names))])
    speaker = re.compile(rf"^[ \t]*(?:(\{{\{{user\}}\}}|<user>)|({character}))[ \t]*:", re.IGNORECASE | re.MULTILINE)
    exchanges: list[tuple[str, str]] = []
    rest: list[str] = []
    for block in (one.strip() for one in _START.split(text)):
        found = _parse_exchanges(block, speaker)
        if found:
            exchanges += found
        elif block:
            rest.append(speaker.sub(lambda found: "They:" if found[1] else "You:", block))
    return ExampleDialogue(tuple(exchanges), "\n\n".join(rest))


def _parse_exchanges(block: str, speaker: re.Pattern[str]) -> list[tuple[str, str]]:
    """Empty unless player and character alternate, player first."""
    marks = list(speaker.finditer(block))
    if not marks or marks[0].start() != 0 or len(marks) % 2:
        return []
    said = [
        block[mark.end() : following.start() if following is not None else len(block)].strip()
        for mark, following in zip(marks, [*marks[1:], None], strict=True)
    ]
    turns = [mark[1] is not None for mark in marks]
    if turns != [True, False] * (len(marks) // 2) or not all(0 < len(line) <= MOST for line in said):
        return []
    return list(zip(said[::2], said[1::2], strict=True))
