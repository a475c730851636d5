"""NPC Arena: the same bytes for the same index, nothing hidden shown, the whole case before the panel."""

import asyncio
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pydantic import JsonValue, ValidationError

from app.characters.loading import parse_model, read_sheet
from app.characters.scenes import SceneSet
from app.domain.errors import EnvironmentUnavailable
from app.domain.judging import Case, GateFacts, PanelResult, Probes, SecretTerms, SourceEvent
from app.domain.scores import Score
from app.domain.tasks import Completion, Context, Passage, Task
from app.envs.npc_arena.environment import NpcArena, NpcArenaDraft, NpcArenaParams
from app.envs.npc_arena.roster import CastRoster
from app.ports.environment import Tools
from app.toolkit.templates import find_packaged_folder
from tests.support.tables import read_table

SHEET = read_sheet(find_packaged_folder("character_sheets") / "hob_tarrant.yaml")
SCENES = parse_model(Path(__file__).with_name("cargo.yaml").read_text(encoding="utf-8"), "scenes.yaml", SceneSet)
ARENA = NpcArena([SHEET], [SCENES])


@dataclass
class ScriptedPanel:
    """Gives each candidate its place in the group as a reward, and keeps what it was shown."""

    judges: tuple[str, ...] = ("scripted",)
    models: tuple[str, ...] = ("none",)
    digest: str = "scripted"
    cases: list[Case] = field(default_factory=list)

    async def judge(self, case: Case) -> PanelResult:
        self.cases.append(case)
        scores = tuple(
            Score(outcome="scored", reward=place / 10, gate=1.0, absolute=place / 10)
            for place in range(len(case.candidates))
        )
        return PanelResult(scores=scores)


def judged(task: Task, *texts: str, arena: NpcArena = ARENA) -> tuple[Case, list[float | None]]:
    panel = ScriptedPanel()
    group = [Completion(text=text) for text in texts]
    scores = asyncio.run(arena.score(task, group, Tools(panel=panel)))
    return panel.cases[0], [score.reward for score in scores]


def prompt(task: Task) -> str:
    return task.messages[0].content or ""


def parts(document: dict[str, JsonValue], *names: str) -> list[JsonValue]:
    return [document[name] for name in names]


def test_a_task_shows_the_conversation_and_says_what_it_is_about() -> None:
    task = ARENA.task("train", 0, NpcArenaParams())
    assert [(message.role, message.content) for message in task.messages[1:]] == [
        ("user", "Morning. Who crossed last night?"),
        ("assistant", "Folk."),
        ("user", "And what did they carry?"),
    ]
    assert task.metadata == {
        "character": "hob_tarrant",
        "character_name": "Hob Tarrant",
        "genre": "fantasy",
        "language": "en",
        "scene": "cargo",
        "scene_kind": "withheld_event",
        "probe": "withheld_event",
    }


@pytest.mark.parametrize(
    ("params", "expected"), read_table(__file__, "prompt_params.yaml", list[tuple[NpcArenaParams, list[str]]])
)
def test_parameters_change_the_prompt(params: NpcArenaParams, expected: list[str]) -> None:
    shown = prompt(ARENA.task("train", 0, params))
    assert [line for line in expected if line not in shown] == []


def test_names_of_any_script_are_names() -> None:
    names = ["Zoe\u0301", "O’Hara-Li", "अनिता", "Ömer  Jr."]
    assert [NpcArenaParams(player_name=name).player_name for name in names] == ["Zoé", "O’Hara-Li", "अनिता", "Ömer Jr."]


def test_lore_is_told_while_it_holds() -> None:
    limited = SHEET.lore_facts[0].model_copy(update={"valid_to": datetime(2024, 1, 1, tzinfo=UTC)})
    arena = NpcArena([SHEET.model_copy(update={"lore_facts": (limited,)})], [SCENES])
    told = [
        limited.text in prompt(arena.task("train", 0, NpcArenaParams(as_of=as_of)))
        for as_of in (datetime(2023, 12, 31, tzinfo=UTC), datetime(2024, 1, 1, tzinfo=UTC), None)
    ]
    assert told == [True, False, False]


def test_the_greeting_opens_only_scenes_without_a_history() -> None:
    with_history, without = (prompt(ARENA.task(split, 0, NpcArenaParams())) for split in ("train", "test"))
    assert ("You have just said" in with_history, "You have just said" in without) == (False, True)


@pytest.mark.parametrize(
    "wrong",
    [
        *({"reply_words": 19}, {"reply_words": 401}, {"reply_words": True}, {"reply_words": "120"}),
        *({"player_name": ""}, {"player_name": "Wren\n# Rules"}, {"player_name": "{{ 7 * 7 }}"}),
        *({"player_name": "\ud800"}, {"player_name": "x" * 41}, {"player_name": "..."}),
        *({"as_of": "2024-01-01T00:00:00"}, {"unknown": 1}),
    ],
)
def test_parameters_that_make_no_sense_are_refused(wrong: dict[str, JsonValue]) -> None:
    with pytest.raises(ValidationError):
        NpcArenaParams.model_validate(wrong)


def test_the_case_holds_all_that_a_judge_may_know() -> None:
    case, rewards = judged(ARENA.task("train", 0, NpcArenaParams()), "A barrel. Rolled off.", "Ask it.")
    assert (rewards, case.candidates, case.rubric) == ([0.0, 0.1], ("A barrel. Rolled off.", "Ask it."), ARENA.rubric)
    assert list(case.document) == [*("character_sheet", "scene", "visible_events", "withheld_events", "conversation")]
    assert parts(case.document, "scene", "visible_events", "withheld_events", "conversation") == [
        {
            "tests": "withheld_event",
            "location": SHEET.scenario.location,
            "time": "dawn",
            "situation": SHEET.scenario.situation,
            "as_of": None,
            "player": SHEET.scenario.player,
            "secrets_that_may_be_told": ["hidden_channel"],
        },
        [{"id": "barrel", "time": "last night", "text": "A barrel rolled off the landing."}],
        [{"id": "powder", "text": "It held a bishop's ransom.", "reason": "sealed", "leak_terms": ["ransom"]}],
        [
            {"speaker": "player", "text": "Morning. Who crossed last night?"},
            {"speaker": "npc", "text": "Folk."},
            {"speaker": "player", "text": "And what did they carry?"},
        ],
    ]


def test_the_probes_join_scene_and_sheet() -> None:
    case, _ = judged(ARENA.task("train", 0, NpcArenaParams()), "Aye.")
    assert case.probes == Probes(
        must_mention=("barrel",),
        must_not_mention=("gold", "toll bridge"),
        voice=(*SHEET.voice.markers, "Tide waits for none of us."),
        facts=("A barrel rolled off the landing.", *SHEET.probes.gold_facts),
        notes="He saw the barrel only.",
    )


def test_the_gates_learn_who_speaks_and_what_must_not_be_said() -> None:
    task = ARENA.task("train", 0, NpcArenaParams(player_name="Wren", reply_words=30))
    case, _ = judged(task, "Aye.")
    assert case.gates == GateFacts(
        speaker="Hob Tarrant",
        aliases=("Hob", "the ferryman"),
        others=("Wren", "Player", "User"),
        is_machine=False,
        secrets=(SecretTerms(id="tax_boat", terms=SHEET.secrets[0].leak_terms),),
        withheld_terms=("ransom",),
        forbidden_words=SHEET.voice.forbidden_words,
        prompt=prompt(task),
        player_said="Morning. Who crossed last night?\nAnd what did they carry?",
        history=("Folk.",),
        examples=tuple(example.reply for example in SHEET.voice.examples),
        max_words=30,
        language="en",
    )


def test_the_key_of_a_case_comes_from_the_task_alone() -> None:
    one, two = (judged(ARENA.task("train", 0, NpcArenaParams()), *texts)[0].key for texts in (("a",), ("b", "c")))
    other = judged(ARENA.task("train", 0, NpcArenaParams(reply_words=30)), "a")[0].key
    assert (one == two, one == other) == (True, False)


def test_a_task_survives_the_store() -> None:
    task = ARENA.task("train", 0, NpcArenaParams(world="coast", as_of=datetime(2024, 5, 1, tzinfo=UTC)))
    stored = Task.model_validate_json(task.model_dump_json())
    assert (stored, judged(stored, "Aye.")[0]) == (task, judged(task, "Aye.")[0])


def test_a_scene_that_is_gone_leaves_the_group_unscored() -> None:
    task = ARENA.task("train", 0, NpcArenaParams())
    emptied = NpcArena([SHEET], [SCENES.model_copy(update={"scenes": SCENES.scenes[1:]})])
    scores = asyncio.run(emptied.score(task, [Completion(text="Aye.")] * 2, Tools(panel=ScriptedPanel())))
    assert [(score.outcome, score.reason, score.reward) for score in scores] == [
        ("unscored", "version_changed", None)
    ] * 2


def digests_changed(arena: NpcArena) -> Sequence[str]:
    return [name for name, digest in ARENA.digests.items() if arena.digests[name] != digest]


def test_digests_say_what_was_changed() -> None:
    altered = SHEET.model_copy(update={"output": SHEET.output.model_copy(update={"max_words": 41})})
    fewer = SCENES.model_copy(update={"scenes": SCENES.scenes[:1]})
    assert (digests_changed(NpcArena([altered], [SCENES])), digests_changed(NpcArena([SHEET], [fewer]))) == (
        ["sheets"],
        ["scenes"],
    )


def test_a_broken_sheet_makes_the_environment_unavailable_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "broken.yaml").write_text("meta: {id: broken}\n", encoding="utf-8")
    with pytest.raises(EnvironmentUnavailable, match=r"npc_arena: broken\.yaml: meta\.schema_version: missing"):
        NpcArena.read(tmp_path)


def test_generic_scenes_reach_those_who_speak_their_language_and_are_not_left_out() -> None:
    scene = SCENES.scenes[1]
    sets = [
        SceneSet(scenes=(scene.model_copy(update={"id": "all"}),)),
        SceneSet(scenes=(scene.model_copy(update={"id": "others", "not_for": ("hob_tarrant",)}),)),
        SceneSet(language="de", scenes=(scene.model_copy(update={"id": "german"}),)),
        SceneSet(character="somebody", scenes=(scene.model_copy(update={"id": "theirs"}),)),
    ]
    arena = NpcArena([SHEET], sets)
    scenes = [
        arena.task("test", index, NpcArenaParams()).metadata["scene"]
        for index in range(arena.size("test", NpcArenaParams()))
    ]
    assert scenes == ["all"]


def test_a_character_held_out_of_training_plays_in_tests_alone_and_can_be_tried() -> None:
    held_out = SHEET.model_copy(update={"meta": SHEET.meta.model_copy(update={"held_out": True})})
    arena = NpcArena([held_out], [SCENES])
    tried = arena.draft(NpcArenaDraft(character="hob_tarrant", line="Who goes there?")).task
    sizes = [arena.size(split, NpcArenaParams()) for split in ("train", "test")]
    assert (sizes, [message.content for message in tried.messages[1:]]) == ([0, 2], ["Who goes there?"])


def test_claims_may_rest_on_all_that_the_prompt_tells_under_ids_of_their_own() -> None:
    task = ARENA.task("train", 0, NpcArenaParams(world="coast"))
    retrieved = tuple(
        Passage(id=name, text=text, source="events")
        for name, text in (("barrel", "A horn blew."), ("e2", "Fog\ncame."))
    )
    case, _ = judged(ARENA.place(task, Context(passages=retrieved)), "Aye.")
    shown = case.document["visible_events"]
    assert isinstance(shown, list)
    assert case.sources == (
        SourceEvent(id="barrel", text="A barrel rolled off the landing."),
        SourceEvent(id="barrel'", text="A horn blew."),
        SourceEvent(id="e2", text="Fog came."),
    )
    assert [source.model_dump() for source in case.sources] == [
        {name: event[name] for name in ("id", "text")} for event in shown if isinstance(event, dict)
    ]


def test_a_roster_that_nobody_uses_any_more_is_gone_at_once() -> None:
    """A search for cycles comes rarely, and each draft of a sheet has a roster of its own."""
    roster = CastRoster([])
    roster.list_casts("train", "both", "all", "with", None)
    left = weakref.ref(roster)
    del roster
    assert left() is None
