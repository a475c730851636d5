"""`python -m docs.words` prints what a reader meets on each page: words, and long sentences."""

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from docs.markdown import MARKED

ROOT: Final = Path(__file__).resolve().parents[1]
LONG: Final = 25
"""Words of a sentence that readers still take in at once."""

READ: Final = re.compile(r"^<!-- [\w-]+: read by the tests -->\n.*?(?=\n\n|\Z)", re.DOTALL | re.MULTILINE)
FENCED: Final = re.compile(r"^( *)(`{3,})[^`\n]*\n.*?^\1\2`*[ ]*$", re.DOTALL | re.MULTILINE)
WORD: Final = re.compile(r"\S*\w\S*")
"""Marks of tables and lists are none."""
LINK: Final = re.compile(r"\]\([^)\s]*\)")
END: Final = re.compile(r"(?<=[.!?])[*_)\"”]*\s+(?=[\W_]*[A-Z0-9`])")


@dataclass(frozen=True)
class PageWords:
    kept: int
    """Words of generated parts, of fenced blocks, and of tables that tests read."""
    prose: int
    sentences: int
    long_sentences: int

    @property
    def long_share(self) -> float:
        return self.long_sentences / max(1, self.sentences)


def count_words(page: str) -> PageWords:
    prose = READ.sub("", FENCED.sub("\n\n", MARKED.sub("\n\n", page)))
    sentences = [length for sentence in _sentences(prose) if (length := len(WORD.findall(sentence)))]
    words = len(WORD.findall(prose))
    longer = sum(length > LONG for length in sentences)
    return PageWords(len(WORD.findall(page)) - words, words, len(sentences), longer)


def _sentences(prose: str) -> list[str]:
    """Each item of a list, each cell of a table and each paragraph ends a sentence. Headings are none."""
    blocks = re.split(r"\n\s*\n|\n(?=\s*(?:[-*|>#]|\d+\.)\s)", LINK.sub("]", prose))
    cells = [cell for block in blocks for cell in (block.split("|") if block.lstrip().startswith("|") else [block])]
    texts = [cell for cell in cells if not re.match(r"\s*#|[\s\-:]*$", cell)]
    return [sentence for text in texts for sentence in END.split(text)]


def list_pages() -> str:
    lines = [f"{'page':32} {'all':>7} {'kept':>7} {'prose':>7} {'long':>6}"]
    for path in (*sorted((ROOT / "docs").glob("*.md")), *sorted(ROOT.glob("*.md"))):
        one = count_words(path.read_text(encoding="utf-8"))
        name = path.relative_to(ROOT).as_posix()
        lines.append(f"{name:32} {one.kept + one.prose:7} {one.kept:7} {one.prose:7} {one.long_share:6.1%}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(list_pages())
