"""The program that a reply commits to: a fenced block of Python, outside its thinking.

A block begins with a line of three backticks or more (or tildes) and `python`, `py`, `python3` or nothing, and ends
with as many alone on a line: what stands between longer fences may hold shorter ones.

one block                                               it, whatever it defines
several, of which one begins a line with `def name(`    that one: the others show how it is used
the same program twice                                  it
two programs that differ, both of which define it       none, as with any two answers
several, none of which defines it                       none
a block that never ends, code without a fence           none
a block of any other language                           ignored
a program that no file could hold                       none
"""

import re
from collections.abc import Iterator

from app.domain.values import is_encodable
from app.toolkit.answers.committed import MOST_CHARACTERS, Committed, strip_thinking
from app.toolkit.large_texts import iterate_lines

_FENCE = re.compile(r"( {0,3})(`{3,}|~{3,})([^\n]*)")
_LANGUAGE = re.compile(r"[\s{.]*([^\s{},]*)")
_PYTHON = frozenset({"", "python", "python3", "py", "py3", "python-3"})


def extract_committed_code(reply: str, name: str) -> Committed:
    """The program that defines `name`, a plain identifier. Never raises; linear in the length of `reply`."""
    said = strip_thinking(reply)
    if said.unfinished:
        return Committed(None, ("no_answer", "unfinished_thinking"))
    blocks = list(dict.fromkeys(block for block in _iter_blocks(said.text) if block.strip()))
    if len(blocks) > 1:
        defines = re.compile(rf"^(?:(?:async )?def|class) {name}\b|^{name} *[:=]", re.MULTILINE)
        defining = [block for block in blocks if defines.search(block)]
        if len(defining) > 1:
            return Committed(None, ("conflicting_answers",))
        blocks = defining
    if not blocks or not is_encodable(blocks[0]):
        return Committed(None, ("no_answer",))
    if len(blocks[0]) > MOST_CHARACTERS:
        return Committed(None, ("unreadable_answer",))
    return Committed(blocks[0])


def _iter_blocks(text: str) -> Iterator[str]:
    """Contents of closed Python blocks."""
    opened: tuple[int, str, str] | None = None
    lines: list[str] = []
    for line in iterate_lines(text):
        fence = _FENCE.fullmatch(line)
        if opened is None:
            if fence and not (fence[2][0] == "`" and "`" in fence[3]):
                opened, lines = (len(fence[1]), fence[2], fence[3]), []
            continue
        indent, marks, info = opened
        if fence and fence[2].startswith(marks) and not fence[3].strip():
            if _is_python(info):
                yield "\n".join(lines) + "\n"
            opened = None
        else:
            lines.append(line[min(indent, len(line) - len(line.lstrip(" "))) :])


def _is_python(info: str) -> bool:
    language = _LANGUAGE.match(info)
    return language is not None and language[1].lower() in _PYTHON
