"""What cards write in place of names: `{{char}}`, `{{user}}`, and things to roll that nothing here rolls."""

import re
from dataclasses import dataclass
from typing import Final

_MACRO: Final = re.compile(r"(?:\{\{([^{}]*)\}\}|<(bot|char|user)>)(['’]s\b)?", re.IGNORECASE)
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_NOT_SHOWN: Final = ("//", "comment:", "hidden_key:")


@dataclass(frozen=True)
class Wording:
    """What stands for the two who talk. `char` is None where a book belongs to nobody."""

    char: str | None
    user: str = "the one before you"
    users: str = "their"
    """For `{{user}}'s`."""


@dataclass(frozen=True)
class Worded:
    text: str
    left: tuple[str, ...]
    """Macros that still stand in it."""


def worded(text: str, wording: Wording) -> Worded:
    """Names put in, comments left out, everything else as it was. Takes linear time."""
    left: list[str] = []

    def put(found: re.Match[str]) -> str:
        name = (found[1] if found[1] is not None else found[2]).strip().casefold()
        suffix = found[3] or ""
        if name == "user":
            return wording.users if suffix else wording.user
        if name in ("char", "bot") and wording.char is not None:
            return wording.char + suffix
        if name.startswith(_NOT_SHOWN):
            return suffix
        left.append(found[0].removesuffix(suffix))
        return found[0]

    return Worded(shown(_MACRO.sub(put, text)), tuple(left))


def shown(text: str) -> str:
    """Without the control characters that no prompt, database or terminal wants; lines and tabs stay."""
    return _CONTROL.sub("", text)


def macro_name(macro: str) -> str:
    """`{{random}}` for `{{random:a,b}}`: what a report says of it."""
    name = macro.strip("{}<>").partition(":")[0].strip().casefold()[:40]
    return "{{" + name + "}}"
