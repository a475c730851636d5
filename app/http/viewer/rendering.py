"""What all pages of the viewer share: hooks of features, answers, assets, the filter of groups, forms, and differences.

Pages are autoescaped, without undefined values and invisible characters, and always encodable. What a form sends back
and nobody reads on the page is `as_sent`. Every page has a twin at the same address: what is on it as JSON, for
`?format=json` and for clients that ask for `application/json` before HTML.
"""

import hashlib
import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from difflib import SequenceMatcher
from functools import partial
from pathlib import Path
from typing import Annotated, Final, Literal, TypeVar, get_args
from urllib.parse import parse_qs, urlencode

from fastapi import APIRouter, Depends, Query, Request, Response
from jinja2 import Template
from markupsafe import escape
from pydantic import ValidationError
from pydantic_core import to_jsonable_python
from starlette.responses import HTMLResponse, RedirectResponse
from starlette.types import Receive, Scope, Send

from app.domain.access import KeyBounds
from app.domain.errors import InvalidRequest, NotFound, TooLarge
from app.domain.faults import MOST_FAULTS, explain_faults, explain_unknown, make_printable, quote
from app.domain.groups import Group, GroupFilter, parse_text_query
from app.domain.judge_measurements import MeasuredFigure
from app.domain.runs import Purpose
from app.domain.scores import Outcome, Reason
from app.domain.values import utc_now
from app.http.web.api_keys import find_caller, name_cookie, needs
from app.http.web.routes import LazyRoute, build_unknown_refusal, list_known_parameters
from app.toolkit.charts import CHART_STYLE, open_page_templates
from app.toolkit.texts import (
    PALETTE,
    escape_invisible,
    format_age,
)

# What features add to the pages of the kernel.


@dataclass(frozen=True)
class PageLink:
    title: str
    path: str
    """Below the root of the service."""
    position: int = 0
    """Orders the links of a page."""


MenuSection = Literal["Train", "Write", "System"]


@dataclass(frozen=True)
class MenuEntry:
    """An entry of the menu. `position` orders those of a section. By the name `here` pages say that they belong to
    it."""

    position: int
    title: str
    path: str
    here: str
    section: MenuSection = "Write"


@dataclass(frozen=True)
class PageSection:
    """Part of a page: a template with its values, and what the page's twin says of it."""

    template: str
    values: Mapping[str, object]
    data: Mapping[str, object]


@dataclass(frozen=True)
class RunMark:
    """Something that began at `since_group` of a run and was noticed at `noticed_group`. It is drawn into the first of
    `curves` that is shown, or else into the first curve of all."""

    sign: str
    label: str
    since_group: int
    noticed_group: int
    curves: tuple[str, ...] = ()


@dataclass(frozen=True)
class RunSection:
    """What a feature shows of a run: templates at the top of the page, below its curves and among its pins, `values`
    for all of them, what the twin of the page says, and what is drawn into the curves."""

    values: Mapping[str, object]
    data: Mapping[str, object]
    top: str
    below: str
    pins: str
    marks: Sequence[RunMark] = ()


@dataclass(frozen=True)
class JudgeEvidence:
    """Figures of a judge that belong together. `published` are lines on others' judges."""

    told: str
    figures: Sequence[MeasuredFigure]
    command: str
    """Measures them again."""
    measured_at: datetime | None = None
    published: Sequence[str] = ()


@dataclass(frozen=True)
class JudgeSource:
    """What one source says of a judge. Where there is no evidence, `command` measures it, after what `first` says."""

    title: str
    question: str
    evidence: Sequence[JudgeEvidence]
    command: str
    first: str = ""


@dataclass(frozen=True)
class ViewerParts:
    """Hooks of the kernel's pages: links and sections of a group, of a character by id, of a run and a judge by
    name."""

    link_group: Sequence[Callable[[Group], PageLink | None]] = ()
    show_group: Sequence[Callable[[Group], Awaitable[PageSection]]] = ()
    link_character: Sequence[Callable[[str], PageLink]] = ()
    link_characters: Sequence[PageLink] = ()
    link_groups: Sequence[PageLink] = ()
    """Pages that take the filter of the list of groups in their address."""
    show_run: Sequence[Callable[[str], Awaitable[RunSection]]] = ()
    show_judge: Sequence[Callable[[str], Awaitable[JudgeSource]]] = ()


_MENU: Final = (
    MenuEntry(10, "Runs", "/view/runs", "runs", "Train"),
    MenuEntry(20, "Groups", "/view/groups", "groups", "Train"),
    MenuEntry(30, "Compare", "/view/compare", "compare", "Train"),
    MenuEntry(40, "Judges", "/view/judges", "judges", "Train"),
    MenuEntry(50, "Characters", "/view/characters", "characters"),
    MenuEntry(110, "API", "/docs", "", "System"),
)


def _sort_menu(entries: Sequence[MenuEntry]) -> tuple[tuple[MenuSection, tuple[MenuEntry, ...]], ...]:
    ordered = sorted(entries, key=lambda one: one.position)
    return tuple(
        (section, tuple(one for one in ordered if one.section == section)) for section in get_args(MenuSection)
    )


# Answers.

_BY_ACCEPT: Final = {"Vary": "Accept"}
DOCS: Final = "https://github.com/atropos-environments/atropos-environments/tree/main/docs"
"""Where the pages of documentation are. An installation may be older than this line, so its metadata are not asked."""


class Renderer:
    """`templates` are folders, those of the kernel first; `menu` is what features add to the menu; ages are told by
    `clock`."""

    def __init__(
        self,
        templates: Sequence[Path],
        assets_version: str,
        menu: Sequence[MenuEntry] = (),
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        self._environment = open_page_templates(templates)
        self._environment.filters.update(
            as_sent=escape, spelled_out=escape_invisible, age=lambda time: format_age(time, clock())
        )
        self._environment.globals.update(
            query=_build_query, link=build_link, menu=_sort_menu((*_MENU, *menu)), docs_at=DOCS
        )
        self._assets = f"/view/assets/{assets_version}"

    def render(
        self, request: Request, template: str, values: Mapping[str, object], data: object, status: int = 200
    ) -> Response:
        """The page, or its twin: `data`, which may hold models, data classes and plain values. A twin refuses unknown
        query parameters, and a page names them."""
        if wants_json(request):
            unknown, known = _list_unknown(request)
            if unknown:
                raise build_unknown_refusal(unknown, known)
            return _build_json(data, status)
        return self.render_page(request, template, values, status)

    def render_page(
        self, request: Request, template: str, values: Mapping[str, object], status: int = 200
    ) -> HTMLResponse:
        """Renders a page. For its template `root` and `assets` are what its links begin with."""
        root = add_root(request, "")
        caller = find_caller(request.scope)
        unknown, known = _list_unknown(request)
        shared = {
            "unknown": [
                f"`{make_printable(name)}`: {explain_unknown(name, known, 'parameter')}"
                for name in unknown[:MOST_FAULTS]
            ],
            "root": root,
            "assets": root + self._assets,
            "base": str(request.base_url).rstrip("/"),
            "caller": None if caller is None else caller.name,
            "by_cookie": name_cookie(request.scope) in request.cookies,
        }
        html = self._fill(self._environment.get_template(template), {**shared, **values})
        return HTMLResponse(html.encode("utf-8", "backslashreplace"), status_code=status, headers=_BY_ACCEPT)

    def _fill(self, template: Template, values: dict[str, object]) -> str:
        """As `Template.render`. But macros are variables of the context that they refer to, so it would keep all that
        is on the page until somebody looked for cycles."""
        context = template.new_context(values)
        try:
            return "".join(template.root_render_func(context))
        except Exception:
            self._environment.handle_exception()
        finally:
            context.vars.clear()

    def render_missing(self, request: Request, kind: str, wanted: str, path: str, way: str, near: str = "") -> Response:
        """404 as a page, with a link to `path` in the words of `way`. Its twin is a problem document (NotFound)."""
        if wants_json(request):
            raise NotFound(f"there is no {kind} {escape_invisible(wanted[:100])}{near}")
        values = {"kind": kind, "wanted": wanted[:100], "near": near, "path": path, "all": way}
        return self.render_page(request, "missing.html", values, status=404)


def _list_unknown(request: Request) -> tuple[Sequence[str], Sequence[str]]:
    """Query parameters that the page does not know, and those that it knows."""
    known = sorted({*list_known_parameters(request), "format"})
    return [name for name in request.query_params if name not in known and not name.startswith(_FORMER)], known


def wants_json(request: Request) -> bool:
    """`?format=json`, or JSON before HTML in `Accept`. Whoever accepts anything gets the page."""
    if (named := request.query_params.get("format")) is not None:
        return named == "json"
    accepted = request.headers.get("accept", "").lower()
    json_at, page_at = accepted.find("application/json"), accepted.find("text/html")
    return json_at >= 0 and (page_at < 0 or json_at < page_at)


def _build_json(data: object, status: int = 200) -> Response:
    """In ASCII, so that lone surrogates pass; numbers that JSON does not have are null."""
    plain = to_jsonable_python(data, inf_nan_mode="null")
    return Response(json.dumps(plain, allow_nan=False), status, media_type="application/json", headers=_BY_ACCEPT)


def add_root(request: Request, path: str) -> str:
    """The service may run below a path."""
    return str(request.scope.get("root_path", "")).rstrip("/") + path


def build_link(path: str, **named: object) -> str:
    """`path` with those of `named` that are not empty; lists repeat their name."""
    query = {name: value for name, value in named.items() if value not in (None, "", (), [])}
    return f"{path}?{urlencode(query, doseq=True, errors='replace')}" if query else path


# Style sheet and script, read once and served under a URL that changes with their content.

_TYPES = {".css": "text/css", ".js": "text/javascript"}
_FOREVER = {"Cache-Control": "public, max-age=31536000, immutable"}
_FOR_NOW = {"Cache-Control": "no-cache"}


@dataclass(frozen=True)
class _Assets:
    router: APIRouter
    version: str


def load_assets(folder: Path) -> _Assets:
    files = {path.name: _read(path) for path in sorted(folder.iterdir()) if path.suffix in _TYPES}
    current = hashlib.sha256(b"".join(files.values())).hexdigest()[:12]
    router = APIRouter(include_in_schema=False)

    @router.get("/view/assets/{version}/{name}")
    @needs("read", "shared")
    async def asset(version: str, name: str) -> Response:
        """Whatever version is asked for: a page may be another replica's, or one that knows no version."""
        if name not in files:
            raise NotFound("no such file")
        caching = _FOREVER if version == current else _FOR_NOW
        return Response(files[name], media_type=_TYPES[Path(name).suffix], headers=caching)

    return _Assets(router, current)


def _read(path: Path) -> bytes:
    """A style sheet begins with the colours that all pages share, and with the charts."""
    palette = PALETTE + CHART_STYLE if path.suffix == ".css" else ""
    return palette.encode() + path.read_bytes()


# The filter of groups, which listings and the pages of groups carry in their addresses.

_PAGE_SIZE: Final = 50
OUTCOMES: Final[tuple[Outcome, ...]] = get_args(Outcome)
PURPOSES: Final[tuple[Purpose, ...]] = get_args(Purpose)
REASONS: Final[tuple[Reason, ...]] = get_args(Reason)

_WordT = TypeVar("_WordT", bound=str)
Word = Annotated[str, Query(max_length=100)]
ModelWord = Annotated[str, Query(max_length=200)]


@dataclass(frozen=True)
class FilterWords:
    """As sent."""

    environment: Word = ""
    run: Word = ""
    outcome: Word = ""
    label: Word = ""
    scene: Word = ""
    text: Annotated[str, Query(max_length=200)] = ""
    model: ModelWord = ""
    judge: Word = ""
    flag: Word = ""
    reason: Word = ""
    purpose: Word = ""
    task_id: Word = ""
    min_step: Word = ""
    max_step: Word = ""
    min_mean: Word = ""
    max_mean: Word = ""
    min_std: Word = ""
    max_std: Word = ""
    since: Word = ""
    until: Word = ""

    def list_given(self) -> Mapping[str, str]:
        """Those that are not empty, as an address has them."""
        words = {each.name: str(getattr(self, each.name)).strip() for each in fields(self)}
        return {name: word for name, word in words.items() if word}


FilterQuery = Annotated[FilterWords, Depends(FilterWords)]


def build_filter(words: FilterWords, before: int | None, bounds: KeyBounds) -> GroupFilter:
    """The filter of a form. Empty fields, unknown words and what is no number or date filter nothing: `explain_unread`
    names them."""
    read = _read_words(words)
    try:
        where = GroupFilter.model_validate(read)
    except ValidationError as error:
        unread = {one["loc"][0] for one in error.errors(include_url=False, include_context=False)}
        where = GroupFilter.model_validate({name: value for name, value in read.items() if name not in unread})
    return where.within(bounds).model_copy(update={"before": before, "limit": _PAGE_SIZE})


def explain_unread(words: FilterWords) -> list[str]:
    """The fields that somebody filled in and that filter nothing, each with what is wanted there."""
    read, given = _read_words(words), words.list_given()
    told = [
        f"`{name}`: {quote(given[name])} was given; wanted is {wanted}"
        for name, wanted in _WANTED.items()
        if name in given and read[name] is None
    ]
    try:
        GroupFilter.model_validate(read)
    except ValidationError as error:
        told += [fault.sentence for fault in explain_faults(error, GroupFilter)]
    return told


def explain_environment(name: str | None, environments: Sequence[str]) -> str:
    """Empty for one of `environments`, where they are known."""
    if not name or not environments or name in environments:
        return ""
    return f"`{make_printable(name)}`: {explain_unknown(name, environments, 'environment')}"


def _read_words(words: FilterWords) -> dict[str, object]:
    return {name: _READERS.get(name, clean_word)(word) for name, word in words.list_given().items()}


def pick_choice(choices: tuple[_WordT, ...], word: str) -> _WordT | None:
    """None for a word that is none of them."""
    return next((choice for choice in choices if choice == word), None)


def _parse_time(word: str, *, to_end: bool = False) -> datetime | None:
    """A moment, in UTC unless it says otherwise, or a day. `to_end` means the end of that day."""
    try:
        moment = datetime.fromisoformat(word.strip())
    except ValueError:
        return None
    if not 1970 < moment.year < 9999:  # `to_end` can still add a day
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return moment + timedelta(days=1) if to_end and len(word.strip()) <= len("2026-01-01") else moment


def clean_word(word: str) -> str | None:
    """Strips a filter word and replaces NUL, which PostgreSQL refuses in queries."""
    return word.strip().replace("\x00", "\N{REPLACEMENT CHARACTER}") or None


_READERS: Final[Mapping[str, Callable[[str], object]]] = {
    "text": parse_text_query,
    "since": _parse_time,
    "until": partial(_parse_time, to_end=True),
}
"""Of the words that are not read as an address of the API has them."""
_DATE: Final = "a date, such as 2026-01-31, or a time, such as 2026-01-31T12:00"
_WANTED: Final[Mapping[str, str]] = {"text": "text with a letter or a digit", "since": _DATE, "until": _DATE}
"""Where the reader of a word found nothing."""


def _build_query(words: FilterWords, **more: object) -> str:
    """The filter as a query string with its question mark, for links."""
    return build_link("", **{**words.list_given(), **more})


# Forms that the pages send: their fields, and the page that one is led to afterwards.

_MOST_FIELDS: Final = 2_000
_FORMER: Final = "was."
"""Before the name of a visible field: the hidden one with the value that the visible one shows."""
FormFields = Mapping[str, Sequence[str]]
"""What was filled in, by field; never empty."""


async def read_fields(request: Request, most_bytes: int) -> FormFields:
    """With line ends as texts have them: browsers send their own. Fields that nobody changed are what they were, with
    the signs that pages spell out. TooLarge; InvalidRequest for what is no form."""
    body = await request.body()
    if len(body) > most_bytes:
        raise TooLarge(f"the form is larger than {most_bytes} bytes")
    try:
        fields = parse_qs(body.decode(), max_num_fields=_MOST_FIELDS, errors="strict")
    except ValueError:
        raise InvalidRequest("the form cannot be read") from None
    return _restore_fields({name: [value.replace("\r\n", "\n") for value in values] for name, values in fields.items()})


class FilterRoute(LazyRoute):
    """A page whose form sends its fields in the address. They are restored as those of a body are."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        query = scope["query_string"]
        if _FORMER.encode() in query:
            fields = parse_qs(query.decode("latin-1"), keep_blank_values=True)
            scope["query_string"] = urlencode(_restore_fields(fields), doseq=True).encode()
        await super().handle(scope, receive, send)


def _restore_fields(sent: FormFields) -> FormFields:
    return {
        name: [_restore(value, sent.get(_FORMER + name, ())) for value in values]
        for name, values in sent.items()
        if not name.startswith(_FORMER)
    }


def _restore(value: str, former: Sequence[str]) -> str:
    return next((was for was in former if escape_invisible(was) == value), value)


def pick_field(fields: FormFields, name: str) -> str:
    """The first value; empty without one."""
    return next(iter(fields.get(name, ())), "")


def redirect(request: Request, path: str, **named: object) -> Response:
    return RedirectResponse(add_root(request, build_link(path, **named)), 303)


# Differences: two texts word by word.

MOST_WORDS: Final = 2_400
"""Of each text, gaps and marks included: what is behind them is not compared. So many take a tenth of a second."""
MOST_LINES: Final = 5_000
"""Longer texts are not compared line by line, which takes long."""
MOST_CHARACTERS: Final = 20_000
"""Of a block of lines that is too long to be compared."""
_WORD: Final = re.compile(r"\s+|\w+|[^\w\s]")


@dataclass(frozen=True)
class DiffPiece:
    kind: Literal["both", "first", "second"]
    text: str


@dataclass(frozen=True)
class WordDiff:
    """`left_out` are characters of both that were not compared."""

    pieces: tuple[DiffPiece, ...]
    similarity: float
    left_out: int


def compare_words(first: str, second: str) -> WordDiff:
    one, other = _split(first), _split(second)
    matcher = SequenceMatcher(None, one, other)
    pieces: list[DiffPiece] = []
    for kind, begin, end, from_, to in matcher.get_opcodes():
        if kind == "equal":
            pieces.append(DiffPiece("both", _join(one[begin:end])))
            continue
        if begin < end:
            pieces.append(DiffPiece("first", _join(one[begin:end])))
        if from_ < to:
            pieces.append(DiffPiece("second", _join(other[from_:to])))
    left = len(first) + len(second) - sum(map(len, one)) - sum(map(len, other))
    return WordDiff(tuple(pieces), matcher.ratio(), left)


def compare_revisions(first: str, second: str) -> WordDiff:
    """The lines that differ, word by word, with two lines around each change."""
    one, other = first.splitlines(keepends=True), second.splitlines(keepends=True)
    if max(len(one), len(other)) > MOST_LINES:
        return WordDiff((), 0, len(first) + len(second))
    matcher = SequenceMatcher(None, one, other)
    pieces: list[DiffPiece] = []
    words, left = MOST_WORDS, 0
    for number, group in enumerate(matcher.get_grouped_opcodes(2)):
        pieces += [DiffPiece("both", "⋯\n")] if number else []
        for kind, begin, end, from_, to in group:
            before, now = "".join(one[begin:end]), "".join(other[from_:to])
            if kind == "equal":
                pieces.append(DiffPiece("both", escape_invisible(before)))
                continue
            size = max(len(_split(before)), len(_split(now)))
            is_compared = bool(before and now) and size < words
            block = compare_words(before, now) if is_compared else _show_block(before, now)
            words -= size if is_compared else 0
            pieces += block.pieces
            left += block.left_out
    return WordDiff(tuple(pieces), matcher.ratio(), left)


def _show_block(first: str, second: str) -> WordDiff:
    """The beginnings, without a comparison."""
    before, now = first[:MOST_CHARACTERS], second[:MOST_CHARACTERS]
    pieces = (DiffPiece("first", escape_invisible(before)), DiffPiece("second", escape_invisible(now)))
    left = len(first) + len(second) - len(before) - len(now)
    return WordDiff(tuple(piece for piece in pieces if piece.text), 0, left)


def _split(text: str) -> Sequence[str]:
    words = []
    for match in _WORD.finditer(text):
        words.append(match[0])
        if len(words) == MOST_WORDS:
            break
    return words


def _join(words: Sequence[str]) -> str:
    return escape_invisible("".join(words))
