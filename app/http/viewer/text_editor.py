"""A page on which a text is written: the form as sent, what a check says, and what it changes."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from difflib import unified_diff
from typing import Annotated, Final, Literal, cast, get_args

from fastapi import Query, Request

from app.characters.authored_texts import CardOrigin
from app.characters.sheet_checks import SheetFinding
from app.domain.authored_files import MAX_AUTHORED, MAX_NOTE, ListedRevision
from app.domain.errors import TooLarge
from app.domain.worlds import EarlierText
from app.http.viewer.group_pages import MessageLine
from app.http.viewer.rendering import MOST_LINES, WordDiff, compare_revisions, pick_field, read_fields
from app.http.viewer.sentences import tell_text
from app.toolkit.texts import SHOWN_AT_ALL, Excerpt, cut_excerpt, run_in_turn

_MAX_FORM: Final = 4 * MAX_AUTHORED
"""Bytes: a text may be encoded as %XX for the most part."""
_MOST_ROWS: Final = 300
"""Fields of an imported card that are listed."""
_MAX_CHANGED: Final = 400
"""Lines of a comparison that are shown."""

HISTORY: Final = 50
"""Revisions or earlier texts that are listed."""

Number = Annotated[int | None, Query(ge=1, le=2**31)]
"""Of a revision or an earlier text, in an address."""
Doing = Literal["check", "save", "publish", "discard", "withdraw", "form", "sheet"]

_LISTED: Final = ("revision", "author", "at", "note", "is_withdrawal")
"""Of a revision, without its text."""


@dataclass(frozen=True)
class TextForm:
    """`stamp` says which text the author has read."""

    text: str
    stamp: str
    note: str = ""
    scene: str = ""
    line: str = ""


@dataclass(frozen=True)
class ChangedLine:
    kind: Literal["both", "first", "second", "place"]
    text: str


@dataclass(frozen=True)
class RecalledLine:
    """An entry of a lorebook that comes up for a line, and why."""

    name: str
    because: str
    is_told: bool
    content: Excerpt


@dataclass(frozen=True)
class RevisionDifference:
    """What a revision changed, word by word. `before` is the number of the one before it, and its text."""

    revision: int
    before: int
    text_before: str
    words: WordDiff


@dataclass(frozen=True)
class Publishing:
    """Of a text that is kept as a draft before it is published. `trainings` are running and take up a published text
    with their next epoch, `pinned` are running and do not."""

    published: str
    """What is published, in words."""
    draft: datetime | None = None
    """When the draft was saved; None without one."""
    newer: int | None = None
    """The revision that was published after the draft was begun, if there is one."""
    talk: str = ""
    """The path of a talk to the draft; empty where there is nobody to talk to."""
    can_withdraw: bool = False
    has_file: bool = False
    """Whether the folder has a file that counts again once the published text is taken back."""
    trainings: tuple[str, ...] = ()
    pinned: tuple[str, ...] = ()


@dataclass(frozen=True)
class CardReport:
    """What became of each field of a card that was imported: its path, what, and where it went or why not. `original`
    is the card."""

    source: str
    rows: tuple[tuple[str, str, str], ...]
    original: Excerpt
    counts: str
    """How many fields became what."""


@dataclass(frozen=True)
class TextEditor:
    """`path` is where the form is sent. `recalled` is None for what is no lorebook. `publishing` and `history` are of
    files, `in_force` and `earlier` of events and lorebooks, which are in force when they are saved."""

    kind: Literal["sheet", "scenes", "event", "lorebook"]
    title: str
    path: str
    back: tuple[str, str]
    form: TextForm
    in_force: str = ""
    """What is in force, in words."""
    publishing: Publishing | None = None
    findings: Sequence[SheetFinding] = ()
    problem: str = ""
    saved: str = ""
    prompt: tuple[MessageLine, ...] = ()
    no_prompt: str = ""
    scenes: Sequence[str] = ()
    changed: tuple[ChangedLine, ...] = ()
    is_new: bool = False
    """Whether there is nothing yet that the text changes."""
    history: Sequence[ListedRevision] = ()
    earlier: Sequence[EarlierText] = ()
    difference: RevisionDifference | None = None
    recalled: tuple[RecalledLine, ...] | None = None
    links: tuple[tuple[str, str], ...] = ()
    no_form: str = ""
    """Why the form of ten fields cannot hold the sheet; empty where it can."""
    import_id: str = ""
    imported: CardReport | None = None

    @property
    def count(self) -> str:
        return count_findings(self.findings)

    @property
    def says(self) -> str:
        if self.publishing is not None:
            return tell_text(self.publishing.draft, self.publishing.published)
        return f"{self.in_force} is in force. What you save is in force at once, in tasks that are not handed out yet."

    @property
    def data(self) -> dict[str, object]:
        """The twin of the page."""
        return {
            "text": self.form.text,
            "revision": self.form.stamp,
            "findings": self.findings,
            "prompt": self.prompt,
            "history": self.earlier or [{name: getattr(one, name) for name in _LISTED} for one in self.history],
            "difference": self.difference,
            "recalled": self.recalled,
            "publishing": self.publishing,
            "imported": self.imported,
        }


def describe_card(origin: CardOrigin | None) -> CardReport | None:
    """What was dropped and read otherwise first, then what was used, and what is only kept."""
    if origin is None:
        return None
    report = origin.report
    rows = [
        *((one.field, "dropped", one.why) for one in report.dropped),
        *((one.field, "read otherwise", one.how) for one in report.mended),
        *((one.field, "used", one.to) for one in report.mapped),
        *((one.field, "kept, not used", one.why) for one in report.kept),
        *(("", "assumed", what) for what in report.assumed),
    ]
    counted = Counter(what for _, what, _ in rows)
    more = len(rows) - _MOST_ROWS
    told = [*rows[:_MOST_ROWS], *([("", "", f"and {more} more")] if more > 0 else [])]
    counts = ", ".join(f"{count} {what}" for what, count in counted.items())
    return CardReport(report.source, tuple(told), cut_excerpt(origin.original, SHOWN_AT_ALL), counts)


def count_findings(findings: Sequence[SheetFinding]) -> str:
    """Behind the word of a button: ` (1 error, 2 warnings)`. Empty without any."""
    counts = ((level, sum(finding.level == level for finding in findings)) for level in ("error", "warning"))
    said = [f"{count} {level}{'' if count == 1 else 's'}" for level, count in counts if count]
    return f" ({', '.join(said)})" if said else ""


async def read_form(request: Request) -> tuple[Doing, TextForm]:
    """TooLarge; InvalidRequest for what no browser sends."""
    fields = await read_fields(request, _MAX_FORM)
    sent = {name: pick_field(fields, name) for name in ("text", "do", "stamp", "note", "scene", "line")}
    text = sent["text"]
    if len(text) > MAX_AUTHORED:
        raise TooLarge(f"the text is longer than {MAX_AUTHORED} characters")
    note, scene, line = (sent[name].strip() for name in ("note", "scene", "line"))
    return read_doing(sent["do"]), TextForm(text, sent["stamp"][:64], note[:MAX_NOTE], scene[:64], line[:4000])


def read_doing(text: str) -> Doing:
    """What the button that was pressed says; a check for what no button says."""
    return cast(Doing, text) if text in get_args(Doing) else "check"


def compare_lines(before: str, now: str) -> tuple[ChangedLine, ...]:
    """What `now` changes, with two lines around each change."""
    first, second = before.splitlines(), now.splitlines()
    if before == now:
        return ()
    if max(len(first), len(second)) > MOST_LINES:
        return (ChangedLine("place", f"more than {MOST_LINES} lines are not compared"),)
    # The first two lines name files.
    lines = [_build_line(line) for line in list(unified_diff(first, second, lineterm="", n=2))[2:]]
    more = len(lines) - _MAX_CHANGED
    return (*lines[:_MAX_CHANGED], *((ChangedLine("place", f"and {more} more lines"),) if more > 0 else ()))


def _build_line(line: str) -> ChangedLine:
    text = line[1:]
    if line.startswith("+"):
        return ChangedLine("second", text)
    if line.startswith("-"):
        return ChangedLine("first", text)
    return ChangedLine("place", line) if line.startswith("@") else ChangedLine("both", text)


async def build_difference(now: tuple[int, str], before: tuple[int, str]) -> RevisionDifference:
    """Each with its number and text."""
    words = await run_in_turn("authors", compare_revisions, before[1], now[1])
    return RevisionDifference(revision=now[0], before=before[0], text_before=before[1], words=words)
