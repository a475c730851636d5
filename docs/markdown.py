"""Generated parts inside pages that people write: markers, tables, fenced blocks."""

import re
from collections.abc import Iterable, Mapping, Sequence

MARKED = re.compile(r"(<!-- generated: (?P<name>[a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def names_in(page: str) -> tuple[str, ...]:
    """The parts that a page asks for, in its order."""
    return tuple(found["name"] for found in MARKED.finditer(page))


def filled(page: str, parts: Mapping[str, str]) -> str:
    """The page with every marked part as it should be. KeyError for a name that nobody generates."""
    return MARKED.sub(lambda found: f"{found[1]}{parts[found['name']].strip()}\n{found[3]}", page)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines)


def fenced(text: str, language: str = "text") -> str:
    """A block that may hold fences of its own."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def code(text: str) -> str:
    return f"`{text}`" if text else ""


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
