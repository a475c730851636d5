"""Decorators: lines `@@name value` at the start of an entry's content that control its use."""

import re
from dataclasses import dataclass
from typing import Final

MOST: Final = 64
_LINE: Final = re.compile(r"(@@@?)([A-Za-z_]+)(?:[ \t]+(.*))?")


@dataclass(frozen=True)
class Decorator:
    name: str
    value: str

    @property
    def values(self) -> tuple[str, ...]:
        """The comma-separated values."""
        return tuple(part for part in (one.strip() for one in self.value.split(",")) if part)


@dataclass(frozen=True)
class DecoratedContent:
    """Content and decorators. Each chain is a decorator followed by its fallbacks, in order."""

    content: str
    chains: tuple[tuple[Decorator, ...], ...]


def split_decorators(content: str) -> DecoratedContent:
    """Separates decorators from content; unchanged where there are none."""
    lines = content.split("\n")
    chains: list[list[Decorator]] = []
    read = 0
    for line in lines[: 4 * MOST]:
        found = _LINE.fullmatch(line.strip())
        if found is None and (line.strip() or not chains):
            break
        read += 1
        if found is None:
            continue
        decorator = Decorator(found[2].casefold(), (found[3] or "").strip())
        if found[1] == "@@@" and chains:
            chains[-1].append(decorator)
        else:
            chains.append([decorator])
    if not chains:
        return DecoratedContent(content, ())
    return DecoratedContent("\n".join(lines[read:]).strip("\n"), tuple(tuple(chain) for chain in chains[:MOST]))
