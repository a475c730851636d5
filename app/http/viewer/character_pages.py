"""Pages of characters: which there are, and one with its sheet, checks, scenes, curves, best and worst replies."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from typing import Final

from fastapi import APIRouter, Request, Response
from fastapi.responses import FileResponse, HTMLResponse
from pydantic import JsonValue

from app.characters.scenes import Scene
from app.characters.schema import CharacterCard, CharacterSheet, build_character_cards, build_policy_view
from app.characters.sheet_checks import SheetFinding
from app.domain.access import KeyBounds
from app.domain.authored_files import ListedDraft
from app.domain.errors import GatewayError
from app.domain.groups import GroupFilter, GroupSummary
from app.domain.rollups import GROUPS_PER_BUCKET, Rollup, RollupFilter, add_up_rollups
from app.domain.values import suggest
from app.http.viewer.group_pages import CompletionCard, build_cards
from app.http.viewer.rendering import FilterRoute, Renderer, ViewerParts, Word, redirect
from app.http.viewer.run_pages import ChartView, MeasuredCurves, SeriesSource, draw, measure_curves
from app.http.viewer.sentences import tell_character, tell_characters
from app.http.web.api_keys import CallerBounds, needs
from app.store.views import GroupViews
from app.toolkit.charts import TONES
from app.toolkit.texts import Excerpt, cut_excerpt

_NEWEST: Final = 100
"""Groups of a character in which its best and worst replies are looked for."""
_COUNTED: Final = 2000
"""Newest groups that the means of the list are of."""
PORTRAITS: Final = {".webp": "image/webp", ".png": "image/png", ".jpg": "image/jpeg"}
"""Kinds of pictures by suffix."""
_SHOWN: Final = 3
"""Best replies, and worst."""
_VISIBLE_CHARACTERS: Final = 400
"""Of a field of a sheet, before folding."""


@dataclass(frozen=True)
class CharacterPages:
    """Data for the pages. `environment` is whose tasks are labelled by character; `check` says what is to be said
    against the sheets in their files, by character."""

    environment: str
    list_sheets: Callable[[], Sequence[CharacterSheet]]
    list_scenes: Callable[[str], Sequence[Scene]]
    list_drafts: Callable[[], Awaitable[Sequence[ListedDraft]]]
    """What the caller keeps and has not published."""
    check: Callable[[], Awaitable[Sequence[SheetFinding]]]
    views: GroupViews
    parts: ViewerParts = field(default_factory=ViewerParts)
    list_portraits: Callable[[], Mapping[str, Path]] = dict
    """Pictures in the folder of sheets, by character."""


@dataclass(frozen=True)
class CharacterTotals:
    """What the training groups of a character add up to."""

    groups: int
    reward: float | None
    calibrated: float | None
    gated: float | None


@dataclass(frozen=True)
class CharacterRow:
    """`reward` is the mean of its training completions lately; None where nothing was scored."""

    card: CharacterCard
    scenes: int
    errors: int
    warnings: int
    reward: float | None = None
    has_portrait: bool = False


@dataclass(frozen=True)
class SheetField:
    """One field of a sheet, written out. Judges' fields are not shown to the policy."""

    name: str
    text: Excerpt
    is_hidden: bool


@dataclass(frozen=True)
class KnownReply:
    """A reply in the character's name, from one of its newest groups."""

    group: GroupSummary
    card: CompletionCard


@dataclass(frozen=True)
class CharacterReplies:
    """`looked_at` groups were looked at."""

    best: tuple[KnownReply, ...]
    worst: tuple[KnownReply, ...]
    looked_at: int


@dataclass(frozen=True)
class CharacterCurves:
    """A curve for each run; `left_out` are runs for which there is no room. `runs` are those with a name."""

    runs: tuple[str, ...]
    names: tuple[str, ...]
    measured: tuple[MeasuredCurves, ...]
    charts: tuple[ChartView, ...]
    left_out: int


def create_character_pages_router(pages: CharacterPages, renderer: Renderer) -> APIRouter:
    router = APIRouter(
        prefix="/view/characters", include_in_schema=False, default_response_class=HTMLResponse, route_class=FilterRoute
    )

    @router.get("")
    @needs("read", "handler")
    async def characters(request: Request, bounds: CallerBounds) -> Response:
        sheets, findings = pages.list_sheets(), await _check(pages)
        rewards, portraits = await _load_rewards(pages, bounds), pages.list_portraits()
        rows = [
            replace(_build_row(pages, card, findings), reward=rewards.get(card.id), has_portrait=card.id in portraits)
            for card in build_character_cards(sheets)
        ]
        drafts = [{"character": draft.character, "name": draft.name} for draft in await _list_drafts(pages)]
        levels = [["error"] * row.errors + ["warning"] * row.warnings for row in rows]
        shown = {
            "rows": rows,
            "drafts": drafts,
            "links": pages.parts.link_characters,
            "says": tell_characters([row.card.name for row in rows], levels, len(drafts)),
        }
        return renderer.render(request, "characters.html", shown, {"characters": rows, "drafts": drafts})

    @router.get("/{character}/portrait")
    @needs("read", "handler")
    async def portrait(request: Request, character: str) -> Response:
        """Of a character that is served."""
        path = pages.list_portraits().get(character)
        if path is None or character not in {sheet.id for sheet in pages.list_sheets()}:
            return renderer.render_missing(request, "portrait", character, "/view/characters", "Show every character.")
        return FileResponse(path, media_type=PORTRAITS[path.suffix])

    @router.get("/{character}")
    @needs("read", "handler")
    async def one(request: Request, character: str, bounds: CallerBounds, run: Word = "") -> Response:
        sheets = {sheet.id: sheet for sheet in pages.list_sheets()}
        sheet = sheets.get(character)
        if sheet is None and character in {draft.character for draft in await _list_drafts(pages)}:
            return redirect(request, f"/view/characters/{character}/form")
        if sheet is None:
            near = suggest(character[:100], sheets)
            return renderer.render_missing(
                request, "character", character, "/view/characters", "Show every character.", near
            )
        where = RollupFilter("label", pages.environment, run.strip() or None, label=sheet.id)
        rollups = await pages.views.list_rollups(where.within(bounds))
        findings = [one for one in await _check(pages) if _name_sheet(one) == sheet.id]
        scenes, curves = pages.list_scenes(sheet.id), _build_curves(rollups)
        replies = await _find_replies(pages, sheet.id, run.strip() or None, bounds)
        totals = _add_up(rollups)
        shown = {
            "card": build_character_cards([sheet])[0],
            "fields": _build_fields(sheet, with_hidden=bounds.is_open),
            "findings": findings,
            "scenes": scenes,
            "curves": curves,
            "replies": replies,
            "totals": totals,
            "says": tell_character(
                totals.groups if totals else 0,
                totals.reward if totals else None,
                [finding.level for finding in findings],
            ),
            "run": run.strip(),
            "environment": pages.environment,
            "links": sorted(
                (find_link(sheet.id) for find_link in pages.parts.link_character), key=attrgetter("position")
            ),
        }
        data = {
            "card": shown["card"],
            "sheet": sheet if bounds.is_open else build_policy_view(sheet),
            "findings": findings,
            "scenes": scenes if bounds.is_open else [scene.id for scene in scenes],
            "curves": curves.measured,
            "replies": replies,
            "totals": totals,
        }
        return renderer.render(request, "character.html", shown, data)

    return router


async def _load_rewards(pages: CharacterPages, bounds: KeyBounds) -> dict[str, float | None]:
    """The mean by character, over the newest training groups of all environments together."""
    newest = (await pages.views.find_outlines(GroupFilter(limit=1))).outlines
    first = max(0, newest[0].sequence - _COUNTED) // GROUPS_PER_BUCKET if newest else 0
    where = RollupFilter("bucket", pages.environment, first_bucket=first).within(bounds)
    by_label: defaultdict[str, list[Rollup]] = defaultdict(list)
    for rollup in await pages.views.list_rollups(where):
        by_label[rollup.key.label or ""].append(rollup)
    return {label: add_up_rollups(rollups).mean("reward") for label, rollups in by_label.items()}


async def _list_drafts(pages: CharacterPages) -> list[ListedDraft]:
    return [draft for draft in await pages.list_drafts() if draft.is_sheet]


async def _check(pages: CharacterPages) -> Sequence[SheetFinding]:
    """Nothing where files cannot be read: the sheets that are served were read from them before."""
    try:
        return await pages.check()
    except (GatewayError, OSError):
        return ()


def _name_sheet(finding: SheetFinding) -> str:
    """A sheet's file has the name of the character."""
    return finding.file.rpartition("/")[2].removesuffix(".yaml")


def _build_row(pages: CharacterPages, card: CharacterCard, findings: Sequence[SheetFinding]) -> CharacterRow:
    own = [finding.level for finding in findings if _name_sheet(finding) == card.id]
    return CharacterRow(card, len(pages.list_scenes(card.id)), own.count("error"), own.count("warning"))


def _build_fields(sheet: CharacterSheet, *, with_hidden: bool) -> tuple[SheetField, ...]:
    """What the policy is shown, then what judges alone are."""
    shown = build_policy_view(sheet)
    whole: dict[str, JsonValue] = sheet.model_dump(mode="json", exclude_defaults=True)
    parts = [(name, part, False) for name, part in shown.items() if name != "meta"]
    if with_hidden:
        parts += [(name, left, True) for name, part in whole.items() if (left := _subtract(part, shown.get(name)))]
    return tuple(
        SheetField(name.replace("_", " "), cut_excerpt(text, _VISIBLE_CHARACTERS), is_hidden)
        for name, part, is_hidden in parts
        if (text := _write(part))
    )


def _subtract(whole: JsonValue, shown: JsonValue) -> JsonValue:
    """What of `whole` is not in `shown`; None for nothing."""
    if isinstance(whole, dict) and isinstance(shown, dict):
        parts = {name: _subtract(part, shown.get(name)) for name, part in whole.items()}
        left: dict[str, JsonValue] = {name: rest for name, rest in parts.items() if rest is not None}
        return left or None
    if isinstance(whole, list) and isinstance(shown, list) and len(whole) == len(shown):
        rests = [_subtract(part, other) for part, other in zip(whole, shown, strict=True)]
        return [rest for rest in rests if rest is not None] or None
    return None if whole == shown else whole


def _write(value: JsonValue, indent: str = "") -> str:
    """As lines, such as `role: ferryman`. What is empty is left out."""
    if isinstance(value, dict):
        written = [(name.replace("_", " "), _write(part, indent + "  ")) for name, part in value.items()]
        return "\n".join(
            f"{indent}{name}:{chr(10) if chr(10) in text or text.startswith(' ') else ' '}{text}"
            for name, text in written
            if text
        )
    if isinstance(value, list):
        return "\n".join(f"{indent}– {text.lstrip()}" for part in value if (text := _write(part, indent + "  ")))
    return "" if value in (None, "", False) else "yes" if value is True else str(value)


def _add_up(rollups: Sequence[Rollup]) -> CharacterTotals | None:
    if not rollups:
        return None
    whole = add_up_rollups(rollups)
    return CharacterTotals(whole.count("groups"), whole.mean("reward"), whole.mean("calibrated"), whole.share("gated"))


def _build_curves(rollups: Sequence[Rollup]) -> CharacterCurves:
    """Over policy steps, one for each of the runs with the most groups."""
    by_run: dict[str, list[Rollup]] = {}
    for rollup in rollups:
        by_run.setdefault(rollup.key.run or "", []).append(rollup)
    ordered = sorted(by_run, key=lambda run: -sum(rollup.count("groups") for rollup in by_run[run]))
    names = ordered[:TONES]
    curves = list(measure_curves([SeriesSource(name or "without a run", by_run[name]) for name in names]))
    drawn = [draw(rule, measured, ()) for rule, measured in curves if not rule.folded]
    return CharacterCurves(
        runs=tuple(name for name in names if name),
        names=tuple(name or "without a run" for name in names),
        measured=tuple(measured for _, measured in curves),
        charts=tuple(view for view in drawn if view is not None),
        left_out=len(ordered) - len(names),
    )


async def _find_replies(pages: CharacterPages, character: str, run: str | None, bounds: KeyBounds) -> CharacterReplies:
    """The best and the worst of the newest groups that have scores."""
    scored = GroupFilter(environment=pages.environment, run=run, label=character, outcome="scored", limit=_NEWEST)
    groups = (await pages.views.find_groups(scored.within(bounds))).groups
    replies = [(reward, group) for group in groups for reward in set(group.rewards) if reward is not None]
    ordered = sorted(replies, key=lambda reply: (reply[0], reply[1].sequence))
    # Of few replies the better half is best: none stands in both lists.
    worst = ordered[: min(_SHOWN, len(ordered) // 2)]
    best = ordered[max(len(worst), len(ordered) - _SHOWN) :][::-1]
    loaded = await asyncio.gather(*(_load_reply(pages, *reply) for reply in (*best, *worst)))
    return CharacterReplies(
        best=tuple(reply for reply in loaded[: len(best)] if reply is not None),
        worst=tuple(reply for reply in loaded[len(best) :] if reply is not None),
        looked_at=len(groups),
    )


async def _load_reply(pages: CharacterPages, reward: float, group: GroupSummary) -> KnownReply | None:
    """None where the group is gone by now."""
    try:
        detail = await pages.views.get_group(group.group_id)
    except GatewayError as error:
        if error.status in {404, 410}:
            return None
        raise
    if detail is None:
        return None
    slot = next((slot for slot, score in enumerate(detail.group.scores, 1) if score.reward == reward), None)
    cards = build_cards(detail.group)
    card = next((card for card in cards if slot in (card.slot, *card.copies)), None)
    return None if card is None else KnownReply(group, card)
