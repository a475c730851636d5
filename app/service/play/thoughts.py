"""Thoughts that a policy writes before its reply. Players and games would take them for the character's words."""

from typing import Final, Literal

_OPENING: Final = "<think>"
_CLOSING: Final = "</think>"


class ThoughtSplitter:
    """Tells the thought at the beginning of a streamed text from what is said. It holds back no more than a tag."""

    def __init__(self) -> None:
        self._held = ""
        self._place: Literal["start", "thought", "gap", "said"] = "start"

    def feed(self, text: str) -> tuple[str, str]:
        """What of the text so far is now known to be thought, and to be said."""
        self._held += text
        thought = ""
        if self._place == "start":
            self._begin()
        if self._place == "thought":
            thought = self._think()
        if self._place == "gap":
            self._held = self._held.lstrip()
            self._place = "said" if self._held else "gap"
        return thought, self._take() if self._place == "said" else ""

    def end(self) -> tuple[str, str]:
        """What was held back."""
        rest = self._take()
        return (rest, "") if self._place == "thought" else ("", rest)

    def _begin(self) -> None:
        start = self._held.lstrip()
        if start.startswith(_OPENING):
            self._place, self._held = "thought", start.removeprefix(_OPENING)
        elif not _OPENING.startswith(start):
            self._place = "said"

    def _think(self) -> str:
        thought, closing, rest = self._held.partition(_CLOSING)
        if closing:
            self._place, self._held = "gap", rest
            return thought
        kept = next((size for size in range(len(_CLOSING) - 1, 0, -1) if thought.endswith(_CLOSING[:size])), 0)
        self._held = thought[len(thought) - kept :]
        return thought[: len(thought) - kept]

    def _take(self) -> str:
        taken, self._held = self._held, ""
        return taken


def split_thoughts(text: str) -> tuple[str, str]:
    """The thought, and what is said, of a whole text."""
    splitter = ThoughtSplitter()
    thought, said = splitter.feed(text)
    more, rest = splitter.end()
    return thought + more, said + rest
