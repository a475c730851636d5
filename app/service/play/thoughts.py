"""Thoughts that a policy writes before its reply. Players and games would take them for the character's words."""

import re
from typing import Final, Literal

from app.toolkit.answers.committed import (
    LONGEST_TAG,
    THINKING_TAG,
    THINKING_TAGS,
    TURN_END,
    TURN_ENDS,
    ends_thinking,
    split_thinking,
)
from app.toolkit.large_texts import iterate_matches

_TAGS: Final = tuple(tag.casefold() for tag in THINKING_TAGS)
_FIRST: Final = frozenset(tag[0] for tag in (*_TAGS, *TURN_ENDS))
_TAG_OR_END: Final = re.compile(f"(?i:{THINKING_TAG.pattern})|(?P<end>{TURN_END.pattern})")


class ThoughtSplitter:
    """Tells thoughts in a streamed text from what is said. It holds back no more than a tag. What stands before a
    closing tag that nothing opened has been told already: `split_thoughts` of the whole text knows better."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._held = ""
        self._place: Literal["start", "thought", "gap", "said", "behind"] = "start"
        self._has_spoken = False

    @property
    def has_ended(self) -> bool:
        return self._place == "behind"

    @property
    def text(self) -> str:
        """The text up to the end of the turn: nothing behind it changes what was said."""
        return "".join(self._pieces)

    def feed(self, text: str) -> tuple[str, str]:
        """What of the text so far is now known to be thought, and to be said."""
        if self.has_ended:
            return "", ""
        self._pieces.append(text)
        self._held += text
        thought, said, position = "", "", 0
        for tag in iterate_matches(_TAG_OR_END, self._held, LONGEST_TAG):
            if tag["end"] and self._place == "thought":
                continue
            more, rest = self._tell(self._held[position : tag.start()])
            thought, said = thought + more, said + rest
            if tag["end"]:
                self._end_turn(len(self._held) - tag.end())
                return thought, said
            said += self._pass_tag(tag[0])
            position = tag.end()
        end = _find_beginning(self._held, position)
        if self._place == "start" and not self._held[position:end].strip():
            end = position
        more, rest = self._tell(self._held[position:end])
        self._held = self._held[end:]
        return thought + more, said + rest

    def _end_turn(self, behind: int) -> None:
        self._place, self._held = "behind", ""
        self._pieces[-1] = self._pieces[-1][: len(self._pieces[-1]) - behind]

    def _pass_tag(self, tag: str) -> str:
        """What it adds to what is said."""
        if not ends_thinking(tag):
            self._place = "thought"
        elif self._place == "thought" and self._has_spoken:
            self._place = "said"
            return "\n"  # as the parts of a whole text are joined
        elif self._place != "said":
            self._place = "gap"
        return ""

    def end(self) -> tuple[str, str]:
        """What was held back."""
        rest, self._held = self._held, ""
        if self._place == "start":
            self._place = "said"
        return self._tell(rest)

    def _tell(self, part: str) -> tuple[str, str]:
        if self._place == "thought":
            return part, ""
        if self._place == "gap" or (self._place == "start" and not part.strip()):
            part = part.lstrip()
        if part:
            self._place, self._has_spoken = "said", True
        return "", part


def _find_beginning(text: str, start: int) -> int:
    """Where a tag may have begun whose end is still to come; the text's end where none has."""
    for place in range(max(start, len(text) - LONGEST_TAG), len(text)):
        if text[place] in _FIRST:
            rest = text[place:]
            begun = rest.rstrip().casefold()
            if any(tag.startswith(begun) for tag in _TAGS) or any(end.startswith(rest) for end in TURN_ENDS):
                return place
    return len(text)


def split_thoughts(text: str) -> tuple[str, str]:
    """The thought, and what is said, of a whole text."""
    thought, spoken = split_thinking(text)
    return thought, spoken.text if spoken.text == text else spoken.text.strip()
