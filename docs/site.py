"""Hook of mkdocs: brings pages from outside of docs/ onto the site, and leads links to other files to the repository."""

import posixpath
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from docs.markdown import relinked

ROOT: Final = Path(__file__).resolve().parents[1]
REPOSITORY: Final = "https://github.com/atropos-environments/atropos-environments/blob/main"
OUTSIDE: Final = {"CONTRIBUTING.md": "CONTRIBUTING.md", "benchmarks/README.md": "BENCHMARKS.md"}
"""Pages on the site by their paths from the repository's root."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for source, page in OUTSIDE.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    return relinked(markdown, partial(find_link, page.file.src_uri))


def find_link(page: str, target: str) -> str:
    """Where a link from the site's `page` leads on the site: to another of its pages, or to the repository."""
    sources = {site: source for source, site in OUTSIDE.items()}
    source = sources.get(page, f"docs/{page}")
    path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
    on_site = OUTSIDE.get(path) or (path.removeprefix("docs/") if path.startswith("docs/") else None)
    if on_site is None or PurePosixPath(path).suffix == ".py":
        return f"{REPOSITORY}/{path}"
    return posixpath.relpath(on_site, posixpath.dirname(page) or ".")
