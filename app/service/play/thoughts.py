"""Thoughts that a policy writes before its reply. Players and games would take them for the character's words."""

from typing import Final, Literal

from app.toolkit.answers.committed import (
    LONGEST_TAG,
    THINKING_TAG,
    THINKING_TAGS,
    ends_thinking,
    split_thinking,
)
from app.toolkit.large_texts import iterate_matches

_TAGS: Final = tuple(tag.casefold() for tag in THINKING_TAGS)
_FIRST: Final = frozenset(tag[0] for tag in _TAGS)


class ThoughtSplitter:
    """Tells thoughts in a streamed text from what is said. It holds back no more than a tag. What stands before a
    closing tag that nothing opened has been told already, and so has what stands behind an end-of-turn token:
    `split_thoughts` of the whole text knows better."""

    def __init__(self) -> None:
        self._held = ""
        self._place: Literal["start", "thought", "gap", "said"] = "start"
        self._has_spoken = False

    def feed(self, text: str) -> tuple[str, str]:
        """What of the text so far is now known to be thought, and to be said."""
        self._held += text
        thought, said, position = "", "", 0
        for tag in iterate_matches(THINKING_TAG, self._held, LONGEST_TAG):
            more, rest = self._tell(self._held[position : tag.start()])
            thought, said = thought + more, said + rest
            if not ends_thinking(tag[0]):
                self._place = "thought"
            elif self._place == "thought" and self._has_spoken:
                self._place, said = "said", said + "\n"  # as the parts of a whole text are joined
            elif self._place != "said":
                self._place = "gap"
            position = tag.end()
        end = _find_beginning(self._held, position)
        if self._place == "start" and not self._held[position:end].strip():
            end = position
        more, rest = self._tell(self._held[position:end])
        self._held = self._held[end:]
        return thought + more, said + rest

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
            begun = text[place:].rstrip().casefold()
            if any(tag.startswith(begun) for tag in _TAGS):
                return place
    return len(text)


def split_thoughts(text: str) -> tuple[str, str]:
    """The thought, and what is said, of a whole text."""
    thought, spoken = split_thinking(text)
    return thought, spoken.text if spoken.text == text else spoken.text.strip()
