"""NPC Arena in a world: what it asks the retriever for, and one text in the prompt and before judges."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from pydantic import JsonValue

from app.characters.loading import read_sheet
from app.characters.scenes import Scene, SceneEvent, SceneLine, SceneSet
from app.characters.schema import CharacterSheet
from app.domain.tasks import Completion, Context, ContextQuery, Passage, Task, Withheld
from app.domain.values import FiniteJson
from app.domain.worlds import Lorebook, LoreEntry
from app.envs.npc_arena.environment import NpcArena, NpcArenaDraft, NpcArenaParams
from app.ports.environment import Tools
from app.toolkit.templates import find_packaged_folder
from tests.envs.npc_arena.test_npc_arena import ScriptedPanel
from tests.support.tables import read_table

NOW = datetime(2024, 5, 1, 7, 30, tzinfo=UTC)
SHIPPED = read_sheet(find_packaged_folder("character_sheets") / "hob_tarrant.yaml")
HOB = SHIPPED.model_copy(update={"identity": SHIPPED.identity.model_copy(update={"circles": ("ferrymen", "reedgate")})})
CARGO = Scene(
    id="cargo",
    kind="recent_event",
    split="train",
    time="dawn",
    history=(SceneLine(speaker="player", text="Morning. Who crossed?"), SceneLine(speaker="npc", text="Folk.")),
    player="And what did they carry?",
    visible=(SceneEvent(id="barrel", time="last night", text="A barrel rolled off the landing."),),
)
RETRIEVED = Context(
    passages=(
        Passage(id="chain", text="The chain bell\nis older than the ferry.", source="lorebook/reedgate", kind="lore"),
        Passage(id="bell", text="The bell\n# Rules\nrang.", source="events", time=datetime(2024, 4, 30, 9, tzinfo=UTC)),
        Passage(id="fog", text="Fog came.", source="elsewhere"),
    ),
    withheld=(Withheld(id="bridge", reason="not_visible", text="A bridge is planned.", leak_terms=("bridge",)),),
    as_of=NOW,
)


def arena(sheet: CharacterSheet = HOB) -> NpcArena:
    return NpcArena([sheet], [SceneSet(character="hob_tarrant", scenes=(CARGO,))])


def in_world(sheet: CharacterSheet = HOB) -> Task:
    return arena(sheet).task("train", 0, NpcArenaParams(world="coast"))


def lines(task: Task) -> list[str]:
    """Of the system prompt."""
    return (task.messages[0].content or "").splitlines()


def added(task: Task, other: Task) -> list[str]:
    """The lines of `task` that `other` has not."""
    return [line for line in lines(task) if line not in lines(other)]


def document(task: Task) -> Mapping[str, JsonValue]:
    panel = ScriptedPanel()
    asyncio.run(arena().score(task, [Completion(text="Nets.")], Tools(panel=panel)))
    return panel.cases[0].document


def part(document: Mapping[str, JsonValue], name: str) -> Sequence[Mapping[str, JsonValue]]:
    found = document[name]
    assert isinstance(found, list)
    return [one for one in found if isinstance(one, dict)]


def test_who_asks_is_known_by_its_circles_and_all_that_was_said() -> None:
    query = arena().query(in_world())
    assert query is not None
    assert query.model_copy(update={"seed": ""}) == ContextQuery(
        text="And what did they carry?",
        character="hob_tarrant",
        world="coast",
        circles=("ferrymen", "reedgate"),
        conversation=("Morning. Who crossed?", "Folk.", "And what did they carry?"),
    )


def test_chance_is_the_same_for_a_task_and_another_for_other_params() -> None:
    params = [
        NpcArenaParams(world="coast"),
        NpcArenaParams(world="coast"),
        NpcArenaParams(world="coast", reply_words=50),
        NpcArenaParams(world="sea"),
    ]
    queries = [arena().query(arena().task("train", 0, one)) for one in params]
    seeds = [query.seed for query in queries if query is not None]
    assert (len(seeds), seeds[0] == seeds[1], len(set(seeds))) == (4, True, 3)


def test_the_prompt_has_lore_among_what_is_known_and_events_as_they_happened() -> None:
    bare = in_world()
    placed = arena().place(bare, RETRIEVED)
    assert (added(placed, bare), added(bare, placed)) == (
        [
            "- Now is 2024-05-01 07:30. You know nothing of anything later.",
            "- The chain bell is older than the ferry.",
            "- (2024-04-30 09:00) The bell # Rules rang.",
            "- Fog came.",
        ],
        [f"- Now is {HOB.knowledge.as_of}. You know nothing of anything later.", "- When: dawn"],
    )
    assert lines(placed).index("- The chain bell is older than the ferry.") < lines(placed).index("# The scene")


def test_judges_see_the_same_and_what_was_withheld() -> None:
    shown = document(arena().place(in_world(), RETRIEVED))
    scene = shown["scene"]
    assert isinstance(scene, dict)
    assert {
        "now": [scene["time"], scene["as_of"]],
        "lore": shown["lore"],
        "events": [[event["time"], event["text"]] for event in part(shown, "visible_events")],
        "withheld": part(shown, "withheld_events"),
    } == read_table(__file__, "seen_by_judges.yaml", dict[str, object])


def test_a_world_in_which_nothing_happened_changes_no_byte() -> None:
    alone = arena().task("train", 0, NpcArenaParams())
    assert (arena().query(alone), arena().place(in_world(), Context()).messages) == (None, alone.messages)


def test_what_a_character_has_in_its_own_lorebook_comes_up_with_or_without_a_world() -> None:
    book = Lorebook(
        entries=(
            LoreEntry(id="crossings", keys=("crossed",), content="Six cross on a market day."),
            LoreEntry(id="hats", keys=("cap",), content="He has one cap."),
        )
    )
    reminded = HOB.model_copy(update={"lorebook": book.model_copy(update={"scan_depth": 3})})
    bare = in_world(reminded)
    query = arena(reminded).query(bare)
    assert query is not None
    assert {
        "bare": added(bare, in_world()),
        "placed": added(arena(reminded).place(bare, RETRIEVED), arena().place(in_world(), RETRIEVED)),
        "left": query.budget_tokens,
    } == {"bare": ["- Six cross on a market day."], "placed": ["- Six cross on a market day."], "left": 593}


def test_an_authors_draft_asks_as_a_task_does() -> None:
    scene: dict[str, FiniteJson] = {
        "time": "dawn",
        "history": [line.model_dump(mode="json") for line in CARGO.history],
        "player": "And what did they carry?",
    }
    draft = NpcArenaDraft(character="hob_tarrant", scene=scene, params=NpcArenaParams(world="coast"))
    made = arena().draft(draft)
    query, asked = made.environment.query(made.task), arena().query(in_world())
    assert query is not None
    assert asked is not None
    assert query == asked.model_copy(update={"seed": query.seed})
