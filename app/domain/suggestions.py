"""What somebody who mistyped a name may have meant."""

from collections.abc import Iterable
from difflib import get_close_matches


def suggest(name: str, known: Iterable[str]) -> str:
    """To be put behind a sentence: `; did you mean 'gsm8k'?`, or nothing where no name is near."""
    near = get_close_matches(name, sorted(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
