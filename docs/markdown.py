"""Generated parts inside pages that people write: markers, tables, fenced blocks."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

MARKED = re.compile(r"(<!-- generated: (?P<name>[a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
FENCED = re.compile(r"(^```.*?^```|^````.*?^````)", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(\]\()([^)\s:#]+)((?:#[^)\s]*)?\))")
"""Text before the target, the target without its anchor, the rest. Targets with a scheme are not among them."""


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


def relinked(page: str, redirect: Callable[[str], str]) -> str:
    """The page with every relative link outside of code led where `redirect` says."""
    blocks = FENCED.split(page)
    return "".join(
        part if position % 2 else LINK.sub(lambda found: f"{found[1]}{redirect(found[2])}{found[3]}", part)
        for position, part in enumerate(blocks)
    )
