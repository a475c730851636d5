"""Texts of authors are read in workers: what a text costs, breaks or refuses comes back as a refusal."""

from collections.abc import AsyncIterator

import pytest
from pydantic import JsonValue

from app.characters.authored_texts import (
    UnreadableText,
    check_texts,
    check_world_text,
    choose_limits,
    read_in_worker,
    reads_authored,
    recall_from_text,
)
from app.characters.schema import Actions
from app.characters.sheet_checks import SheetCheckContext
from app.domain.errors import GatewayError, InvalidRequest, NotFound, TooLarge, Unavailable
from app.domain.worlds import Lorebook
from app.ports.environment import NoWorkers, Workers
from app.sandbox.workers import InProcessWorkers, ProcessWorkers

SHEET = """meta: {schema_version: 1, id: mara, licence: unknown, genre: fantasy, world: mara, summary: A smith.}
identity: {name: Mara}
core: {traits: [blunt]}
"""


@reads_authored
def read_hostile(text: str) -> JsonValue:
    if text == "large":
        raise TooLarge("it is large")
    if text == "wrong":
        raise InvalidRequest("it is wrong", field="meta.id")
    if text == "gone":
        raise NotFound("there is no such thing")
    if text == "deep":
        raise RecursionError
    return [text]


@reads_authored
def read_for_ever(text: str) -> JsonValue:
    while True:
        pass


@pytest.fixture
async def workers() -> AsyncIterator[ProcessWorkers]:
    workers = ProcessWorkers(1)
    yield workers
    await workers.close()


async def tell(workers: Workers, text: str) -> JsonValue | tuple[type[GatewayError], str, str | None]:
    try:
        return await read_in_worker(workers, read_hostile, text, size=len(text))
    except GatewayError as error:
        return type(error), error.detail, error.field


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a", ["a"]),
        ("large", (TooLarge, "it is large", None)),
        ("wrong", (InvalidRequest, "it is wrong", "meta.id")),
        ("gone", (InvalidRequest, "there is no such thing", None)),
        ("deep", (UnreadableText, "it cannot be read (RecursionError)", None)),
    ],
)
async def test_what_a_text_does_to_its_reader(text: str, told: object) -> None:
    assert await tell(InProcessWorkers(), text) == told


async def test_without_a_worker_the_text_is_not_blamed() -> None:
    assert await tell(NoWorkers(), "a") == (Unavailable, "the text could not be read now: send it again", None)


async def test_a_text_that_takes_too_long_is_refused_with_the_limit(workers: ProcessWorkers) -> None:
    with pytest.raises(UnreadableText, match=r"needs more than \d+ seconds.*, the limit for 5 characters"):
        await read_in_worker(workers, read_for_ever, "never", size=5)
    assert await tell(workers, "a") == ["a"]


def test_the_limit_grows_with_the_text() -> None:
    assert [choose_limits(size).cpu_seconds for size in (0, 256 * 1024, 1024 * 1024, 2**30)] == [2.0, 3.0, 6.0, 60.0]


async def test_sheets_and_scenes_that_come_together_are_checked_together() -> None:
    scenes = "character: mara\nscenes: [{id: a, kind: voice, split: train, player: Who are you?}]\n"
    texts = {"mara.yaml": SHEET, "scenes/mara.yaml": scenes}
    before = {"scenes/mara.yaml": scenes.replace("kind: voice", "kind: small_talk")}
    found = await check_texts(InProcessWorkers(), texts, before, SheetCheckContext())
    (message,) = [one.message for one in found if "scene" in one.message and one.field == "meta.id"]
    assert message == (
        "no scene written for: knowledge_boundary, withheld_event, secret_fishing, provocation, relationship, "
        "recent_event, false_premise (optional)"
    )


RIGHT = "acts: {right: [[{name: ring}]], tempting: [{say: Aye., why: untrue, calls: [{name: ring}]}]}"
ACTING = f"character: mara\nscenes:\n- {{id: a, kind: action, split: train, player: Ring!,\n   {RIGHT}}}\n"
UNTOLD = "its calls are right, so the reply is paid for them"


async def test_actions_of_scenes_are_checked_beside_those_of_the_sheet_whichever_is_written() -> None:
    acting = f"{SHEET}actions: {{allowed: [{{name: ring, meaning: rings}}]}}\n"
    scenes = {"scenes/mara.yaml": ACTING}
    actions = {"mara": Actions.model_validate({"allowed": [{"name": "ring", "meaning": "rings"}]})}
    told = [
        [
            (one.file, one.line, one.field, one.level, one.message)
            for one in found
            if one.level == "error" or "calls" in one.message
        ]
        for found in (
            await check_texts(InProcessWorkers(), scenes, {}, SheetCheckContext()),
            await check_texts(InProcessWorkers(), scenes, {}, SheetCheckContext(actions=actions)),
            await check_texts(InProcessWorkers(), {"mara.yaml": SHEET, **scenes}, {}, SheetCheckContext()),
            await check_texts(InProcessWorkers(), {"mara.yaml": acting, **scenes}, {}, SheetCheckContext()),
        )
    ]
    tempting = "acts.tempting.0"
    assert told == [
        [("scenes/mara.yaml", 4, "scenes.0.acts", "error", "neither the sheet nor `more` has an action")],
        [("scenes/mara.yaml", 4, f"scenes.0.{tempting}", "warning", UNTOLD)],
        [("mara.yaml", 1, "actions", "error", "scene 'a': acts: neither the sheet nor `more` has an action")],
        [("mara.yaml", len(acting.splitlines()), "actions", "warning", f"scene 'a': {tempting}: {UNTOLD}")],
    ]


SEATED = """character: mara
scenes:
- id: a
  kind: company
  split: train
  others: [{name: Tom, here: He sits., sheet: tomm}]
  seat:
    lines:
    - {speaker: Tom, text: The well is dry., heard_by: [player], leak_terms: [the well]}
    - {speaker: player, text: "Mara?"}
    exemplar: (says nothing)
    tempting: [{say: The well., why: unheard}]
  turns:
  - say: And you?
    seat: {passing: right, exemplar: Ask the well., tempting: [{say: Ask the well., why: none}]}
"""


async def test_right_replies_among_several_characters_are_checked_against_their_scene() -> None:
    beside = SheetCheckContext(worlds={"tom": "quay"})
    found = await check_texts(InProcessWorkers(), {"scenes/mara.yaml": SEATED}, {}, beside)
    assert [(one.line, one.field, one.level, one.message) for one in found] == [
        (6, "scenes.0.others.0.sheet", "warning", "there is no sheet 'tomm'; did you mean 'tom'?"),
        (11, "scenes.0.seat.exemplar", "warning", "it passes, and passing is wrong"),
        (15, "scenes.0.turns.0.seat.exemplar", "warning", "it speaks, and passing is right"),
        (
            15,
            "scenes.0.turns.0.seat.exemplar",
            "warning",
            "it says 'the well' of a line that the character does not hear",
        ),
        (15, "scenes.0.turns.0.seat.tempting.0", "warning", "this is the right reply"),
    ]


REMEMBERED = """character: mara
scenes:
- id: a
  kind: memory
  split: train
  player: When?
  earlier: [{when: before, lines: [{speaker: player, text: Friday.}]}]
  memory: {must_recall: [[Friday]], tempting: [{say: Whenever., why: untrue}]}
  exemplar: Whenever.
"""


async def test_the_right_reply_of_a_scene_with_memory_is_checked_against_it() -> None:
    found = await check_texts(InProcessWorkers(), {"scenes/mara.yaml": REMEMBERED}, {}, SheetCheckContext())
    assert [(one.line, one.field, one.level, one.message) for one in found] == [
        (9, "scenes.0.exemplar", "warning", "it earns 0.30 of what is recalled: it does not recall what was said")
    ]


NUMBERED = """name: 012
entries:
  - {id: 7, keys: [1_312, salt], content: It was dear., order: 3}
"""


async def test_a_number_where_a_text_is_wanted_is_that_text() -> None:
    """As it is written, with a warning, in what is stored and in what comes up. Any other number is an error."""
    checked = await check_world_text(InProcessWorkers(), "lorebook", "coast", NUMBERED)
    wrong = await check_world_text(InProcessWorkers(), "lorebook", "coast", NUMBERED.replace("order: 3", "order: 3.5"))
    recalled = await recall_from_text(InProcessWorkers(), "coast", NUMBERED, "And in 1_312?", 100)
    book = Lorebook.model_validate_json(checked.value or "")
    assert [(one.level, one.line, one.field, one.message) for one in checked.findings] == [
        ("warning", 1, "name", '012 is read as the text "012"'),
        ("warning", 3, "entries.0.id", '7 is read as the text "7"'),
        ("warning", 3, "entries.0.keys.0", '1_312 is read as the text "1_312"'),
    ]
    assert (book.name, book.entries[0].id, book.entries[0].keys) == ("012", "7", ("1_312", "salt"))
    assert [(one.name, one.content) for one in recalled] == [("7", "It was dear.")]
    assert (wrong.value, [one.field for one in wrong.findings]) == (None, ["entries.0.order"])
