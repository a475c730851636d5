"""Macros of cards: replaces `{{char}}` and `{{user}}`; random macros are left unchanged."""

import re
from dataclasses import dataclass
from typing import Final

_MACRO: Final = re.compile(r"(?:\{\{([^{}]*)\}\}|<(bot|char|user)>)(['’]s\b)?", re.IGNORECASE)
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_NOT_SHOWN: Final = ("//", "comment:", "hidden_key:")


@dataclass(frozen=True)
class MacroNames:
    """Replacements of the macros. `char` is None for a book without a character."""

    char: str | None
    user: str = "the one before you"
    users: str = "their"
    """For `{{user}}'s`."""


@dataclass(frozen=True)
class ReplacedText:
    text: str
    left: tuple[str, ...]
    """Macros left in the text."""


def replace_macros(text: str, wording: MacroNames) -> ReplacedText:
    """Replaces names, removes comments, and leaves the rest unchanged. Takes linear time."""
    left: list[str] = []

    def replace_match(found: re.Match[str]) -> str:
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

    return ReplacedText(strip_control_characters(_MACRO.sub(replace_match, text)), tuple(left))


def strip_control_characters(text: str) -> str:
    """Removes control characters except line breaks and tabs."""
    return _CONTROL.sub("", text)


def name_macro(macro: str) -> str:
    """`{{random}}` for `{{random:a,b}}`: the macro's name for reports."""
    name = macro.strip("{}<>").partition(":")[0].strip().casefold()[:40]
    return "{{" + name + "}}"
