"""`python -m docs.readability` prints how long the sentences of each page are; `--beside` adds other projects' folders.

Only prose counts: no code, no headings. A cell of a table or an item of a list counts if it ends as a sentence does.
"""

import argparse
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

from docs.generate import ROOT

LONG = 25
"""A sentence with more words than this is long."""

SUFFIXES = (".md", ".qmd", ".rst")

_MARKDOWN_CODE = re.compile(r"^(?P<indent>[ \t]*)(?P<fence>`{3,}|~{3,}).*?^[ \t]*(?P=fence)[`~]*[ \t]*$", re.M | re.S)
_RST_BLOCK = re.compile(r"^(?P<indent>[ \t]*)\.\.[ \t].*\n(?:(?:(?P=indent)[ \t]+.*)?\n)*", re.M)
_RST_LITERAL = re.compile(r"::[ \t]*\n(?:[ \t]*\n)+(?:[ \t]+.*\n(?:[ \t]*\n)*)+")
_RST_HEADING = re.compile(r"^\S.*\n([=\-~^\"'#*+`])\1{2,}[ \t]*$", re.M)
_FRONT_MATTER = re.compile(r"\A---\n.*?^---$", re.M | re.S)
_COMMENT = re.compile(r"<!--.*?-->", re.S)
_TAG = re.compile(r"</?[A-Za-z][^<>]*>")
_RST_ROLE = re.compile(r":[\w:-]+:`([^`<]*?)(?:\s*<[^`]*>)?`")
_RST_LINK = re.compile(r"`([^`<]+?)\s*<[^`>]*>`__?")
_LINK = re.compile(
    r"!?\[((?:[^\[\]]|\[[^\]]*\])*)\](?:\([^()\s]*(?:\([^()]*\)[^()\s]*)*(?:\s\"[^\"]*\")?\)|\[[^\]]*\])"
)
_CODE = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)", re.S)
_ATTRIBUTES = re.compile(r"\{[#.:%][^{}\n]*\}")
_RULE = re.compile(r"\s*(?:#|:::|///|!!!|\{\*|[-=*_+|: ]{3,}$).*")
_ITEM = re.compile(r"^\s*(?:[-*+]|\d+[.)]|#\.)\s+")
_ENDS = re.compile(r"(?<=[.!?])[\"'”’)*_]*\s+(?=[\"'“‘(*_]*[A-Z0-9¤])")
_ABBREVIATED = re.compile(r"\b(?:e\.g|i\.e|etc|vs|cf|Mr|Dr|approx|No)\.$")
_FINISHED = re.compile(r"[.!?:…][\"'”’)*_]*$")
_WORD = re.compile(r"[\w¤][\w¤'’.,/%@+-]*")


@dataclass(frozen=True)
class Page:
    """What the sentences of one page are like."""

    name: str
    sentences: int
    mean: float
    long: float
    """Share of sentences with more than `LONG` words."""


def sentences(page: str, *, rst: bool = False) -> list[str]:
    """The sentences of a page's prose, in order. Inline code stands as `¤`, one word."""
    return [sentence for block in _blocks(_prose(page, rst=rst)) for sentence in split_sentences(block)]


def split_sentences(block: str) -> Iterator[str]:
    """The finished sentences of a paragraph; a rest without a full stop, such as a label, is none."""
    begun = ""
    for piece in _ENDS.split(" ".join(block.split())):
        begun = f"{begun} {piece}".strip()
        if not _ABBREVIATED.search(begun):
            if _FINISHED.search(begun):
                yield begun
            begun = ""


def count_words(sentence: str) -> int:
    return len(_WORD.findall(sentence))


def measure(name: str, text: str, *, rst: bool = False) -> Page | None:
    """None for a page without a sentence."""
    counts = [words for one in sentences(text, rst=rst) if (words := count_words(one))]
    if not counts:
        return None
    return Page(name, len(counts), fmean(counts), sum(words > LONG for words in counts) / len(counts))


def own_pages(root: Path = ROOT) -> list[Path]:
    return [*sorted(root.glob("docs/*.md")), root / "README.md", root / "CONTRIBUTING.md"]


def report(title: str, pages: Sequence[Page]) -> str:
    """A line for each page, the longest sentences first, and the page in the middle."""
    rows = [f"{title}: {len(pages)} pages", "words/sentence  over 25  sentences  page"]
    for page in sorted(pages, key=lambda one: (-one.mean, one.name)):
        rows.append(f"{page.mean:14.1f}  {page.long:7.0%}  {page.sentences:9}  {page.name}")
    middle = f"{median(one.mean for one in pages):14.1f}  {median(one.long for one in pages):7.0%}"
    return "\n".join([*rows, f"{middle}  {'':9}  the median page"])


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m docs.readability", description=__doc__)
    parser.add_argument(
        "--beside", nargs="+", type=Path, default=[], metavar="FOLDER", help="Other folders to measure."
    )
    parser.add_argument("--medians", action="store_true", help="Print only the median page of each.")
    chosen = parser.parse_args(arguments)
    measured = [("this project", _measure_files(own_pages(), ROOT))]
    measured += [(str(folder), _measure_files(_files_in(folder), folder)) for folder in chosen.beside]
    for title, pages in measured:
        text = report(title, pages) if pages else f"{title}: no pages"
        lines = text.splitlines()
        sys.stdout.write("\n".join([lines[0], lines[-1]] if chosen.medians else lines) + "\n\n")
    return 0


def _measure_files(paths: Iterable[Path], root: Path) -> list[Page]:
    found = (
        measure(path.relative_to(root).as_posix(), path.read_text(encoding="utf-8"), rst=path.suffix == ".rst")
        for path in paths
    )
    return [page for page in found if page is not None]


def _files_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.suffix in SUFFIXES and path.is_file())


def _prose(page: str, *, rst: bool) -> str:
    text = _COMMENT.sub("", _FRONT_MATTER.sub("", page))
    if rst:
        text = _RST_LITERAL.sub(":\n\n", _RST_BLOCK.sub("\n", text))
        text = _RST_HEADING.sub("\n", text)
        text = _RST_LINK.sub(r"\1", _RST_ROLE.sub(r"\1", text))
    text = _CODE.sub("¤", _MARKDOWN_CODE.sub("\n", text))
    return _TAG.sub(" ", _ATTRIBUTES.sub("", _LINK.sub(r"\1", text)))


def _blocks(prose: str) -> Iterator[str]:
    """Paragraphs, items of lists and cells of tables."""
    lines: list[str] = []
    for line in [*prose.splitlines(), ""]:
        separate = not line.strip() or _RULE.fullmatch(line) or line.lstrip().startswith("|")
        if separate or _ITEM.match(line):
            yield " ".join(lines)
            lines = []
        if line.lstrip().startswith("|"):
            yield from line.strip().strip("|").split("|")
        elif not separate:
            lines.append(_ITEM.sub("", line, count=1).lstrip("> "))
    yield " ".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
