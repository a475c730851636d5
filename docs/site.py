"""Hook of mkdocs: takes pages from outside of docs/ onto the site, and redirects links."""

from functools import partial
from pathlib import Path
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from docs.site_links import OUTSIDE, find_link, redirect_links

ROOT: Final = Path(__file__).resolve().parents[1]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for source, name in OUTSIDE.items():
        files.append(File.generated(config, name, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    return redirect_links(markdown, partial(find_link, page.file.src_uri))
