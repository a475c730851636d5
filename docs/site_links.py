"""Links on the site: it holds some pages from outside of docs/, and leads to the repository for all other files."""

import posixpath
import re
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Final

REPOSITORY: Final = "https://github.com/atropos-environments/atropos-environments/blob/main"
OUTSIDE: Final = {"CONTRIBUTING.md": "CONTRIBUTING.md", "benchmarks/README.md": "BENCHMARKS.md"}
"""Pages from outside of docs/: their names on the site by their paths in the repository."""

FENCED: Final = re.compile(r"(^```.*?^```)", re.DOTALL | re.MULTILINE)
LINK: Final = re.compile(r"(\]\()([^)\s:#]+)((?:#[^)\s]*)?\))")
"""What stands before the target, the target without its anchor, the rest. A target with a scheme does not match."""


def redirect_links(page: str, redirect: Callable[[str], str]) -> str:
    """The page with every relative link outside of fenced code as `redirect` makes it."""
    parts = FENCED.split(page)
    parts[::2] = [LINK.sub(lambda found: f"{found[1]}{redirect(found[2])}{found[3]}", part) for part in parts[::2]]
    return "".join(parts)


def find_link(page: str, target: str) -> str:
    """Where `target` leads from the site's `page`: to another page of the site, or to the repository."""
    sources = {name: source for source, name in OUTSIDE.items()}
    source = sources.get(page, f"docs/{page}")
    path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
    on_site = OUTSIDE.get(path) or (path.removeprefix("docs/") if path.startswith("docs/") else None)
    if on_site is None or PurePosixPath(path).suffix == ".py":
        return f"{REPOSITORY}/{path}"
    return posixpath.relpath(on_site, posixpath.dirname(page) or ".")
