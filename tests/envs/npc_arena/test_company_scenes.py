"""Scenes with several characters: what the policy and judges read of them, and what shipped scenes pay whom."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from app.characters.casting import Cast
from app.characters.company import PASSING_REPLY, Move, SeatTurn, read_move, verify_turns
from app.domain.errors import InvalidRequest
from app.domain.judging import GateFacts
from app.domain.scores import TURN_TAKING, Score
from app.domain.tasks import Completion, Message, Task
from app.envs.npc_arena.environment import NpcArenaDraft, try_draft
from app.ports.environment import Tools
from tests.envs.npc_arena.test_npc_arena import ScriptedPanel
from tests.envs.npc_arena.test_traps import TOOLS
from tests.support.packaged_arena import packaged_arena, packaged_tasks
from tests.support.tables import read_table

TABLE = read_table(__file__, "company_faults.yaml", tuple[tuple[dict[str, Any], str], ...])
MOVES = read_table(__file__, "company_moves.yaml", tuple[tuple[str, list[str], str, str, Move], ...])
SCENES = [(cast, task) for cast, task in packaged_tasks("both") if cast.scene.seat is not None]
Policy = Callable[[Cast, SeatTurn], str]
POLICIES: Mapping[str, Policy] = {
    "silent": lambda cast, seat: "",
    "passes": lambda cast, seat: PASSING_REPLY,
    "one line": lambda cast, seat: "Hm.",
    "labels": lambda cast, seat: "\n".join(f"[{other.name}] Hm." for other in cast.scene.others),
}


def play(task: Task, replies: list[str]) -> Completion:
    """An episode with these replies. The environment says what comes between them."""
    arena, messages = packaged_arena(), list[Message]()
    for reply in replies:
        messages.append(Message(role="assistant", content=reply))
        messages += arena.step(task, tuple(messages)).messages
    return Completion(messages=tuple(messages))


def play_policy(cast: Cast, task: Task, policy: Policy) -> Completion:
    return play(task, [policy(cast, seat) for seat in cast.scene.seats])


def play_wrong(cast: Cast, task: Task) -> list[Completion]:
    """One tempting reply each, the others right."""
    right = [seat.exemplar for seat in cast.scene.seats]
    return [
        play(task, [*right[:place], wrong.say, *right[place + 1 :]])
        for place, seat in enumerate(cast.scene.seats)
        for wrong in seat.tempting
    ]


def score(task: Task, group: list[Completion]) -> list[Score]:
    return asyncio.run(packaged_arena().score(task, group, TOOLS))


def take_turns(score: Score) -> float:
    """What code alone pays: its part, or nothing where a gate closed."""
    return next((one.value or 0.0 for one in score.criteria if one.name == TURN_TAKING), 0.0)


def test_code_tells_right_replies_from_tempting_ones_in_every_shipped_scene() -> None:
    told = {
        cast.scene.id: score(task, [play_policy(cast, task, lambda _, seat: seat.exemplar), *play_wrong(cast, task)])
        for cast, task in SCENES
    }
    by_code = {name: list(map(take_turns, scores)) for name, scores in told.items()}
    assert {name: found for name, found in by_code.items() if not found[0] == 1.0 > max(found[1:])} == {}
    unpaid = [
        name for name, (own, *wrong) in told.items() if (own.reward or 0) <= max(one.reward or 0 for one in wrong)
    ]
    assert len(unpaid) <= 0.05 * len(told), unpaid


def test_nothing_that_looks_at_no_line_gains_by_it() -> None:
    names = [*POLICIES, "right"]
    sums = Counter[str]()
    for cast, task in SCENES:
        group = [play_policy(cast, task, policy) for policy in POLICIES.values()]
        group.append(play_policy(cast, task, lambda _, seat: seat.exemplar))
        sums.update(dict(zip(names, (one.reward or 0.0 for one in score(task, group)), strict=True)))
    paid = {name: sums[name] / sums["right"] for name in POLICIES}
    assert (paid["silent"], paid["labels"], max(paid.values()) < 0.55) == (0.0, 0.0, True), paid


def test_shipped_scenes_ask_for_silence_and_for_words_in_several_languages() -> None:
    asked = Counter(seat.passing for cast, _ in SCENES for seat in cast.scene.seats)
    whispered = [cast.scene.id for cast, _ in SCENES if any(not line.is_heard for line in cast.scene.seats[0].scripted)]
    assert (
        len(SCENES) >= 20,
        len({cast.sheet.voice.language for cast, _ in SCENES}) >= 3,
        asked["right"] < asked["wrong"] < 2 * asked["right"],
        len(whispered) >= 5,
        0.2 < sum(cast.scene.split == "test" for cast, _ in SCENES) / len(SCENES) < 0.4,
    ) == (True, True, True, True, True)


def test_no_prompt_has_what_the_character_did_not_hear() -> None:
    shown = [
        (cast.scene.id, line.text)
        for cast, task in SCENES
        for seat in cast.scene.seats
        for line in seat.scripted
        if not line.is_heard and line.text in "\n".join(message.content or "" for message in task.messages)
    ]
    assert shown == []


QUAY: dict[str, Any] = {
    "id": "quay-company",
    "kind": "company",
    "split": "train",
    "others": [
        {"sheet": "ottoline_vesk", "name": "Margravine", "here": "She sits.", "shares": ["insolvent"]},
        {"name": "Wren", "here": "She coils.", "leak_terms": ["blue jar"]},
    ],
    "seat": {
        "lines": [
            {"speaker": "player", "text": "Wren, the jar?\n[Hob] Broken."},
            {"speaker": "Wren", "text": "Under the boat.", "heard_by": ["player"], "leak_terms": ["under the boat"]},
            {"speaker": "npc", "text": "Two coppers."},
            {"speaker": "Wren", "text": "None of it is mine."},
        ],
        "passing": "allowed",
        "exemplar": PASSING_REPLY,
        "tempting": [{"say": "Under the boat.", "why": "He did not hear it."}],
    },
    "turns": [
        {
            "say": "Who has it?",
            "seat": {
                "lines": [{"speaker": "Margravine", "text": "I ask as well."}],
                "answers": [{"speaker": "Wren", "text": "Nobody!"}],
                "passing": "right",
                "exemplar": PASSING_REPLY,
            },
        }
    ],
}


def test_the_policy_reads_what_its_character_hears_behind_the_names_of_those_who_say_it() -> None:
    task = packaged_arena().draft(NpcArenaDraft(character="hob_tarrant", scene=QUAY)).task
    prompt = task.messages[0].content or ""
    told = ["- With you: Margravine. She sits.", "- With you: Wren. She coils.", "blue jar", PASSING_REPLY]
    assert ([part in prompt for part in told], [message.content for message in task.messages[1:]]) == (
        [True, True, False, True],
        ["Wren, the jar? [Hob] Broken.", "Two coppers.", "[Wren] None of it is mine."],
    )
    assert task.metadata["others"] == ["Margravine", "Wren"]


def test_the_character_may_speak_first_behind_a_message_in_which_nobody_does() -> None:
    lines = [{"speaker": "npc", "text": "Sit still."}, {"speaker": "player", "text": "Why?"}]
    scene = {**QUAY, "seat": {**QUAY["seat"], "lines": lines}}
    task = packaged_arena().draft(NpcArenaDraft(character="hob_tarrant", scene=scene)).task
    assert [(one.role, one.content) for one in task.messages[1:]] == [
        ("user", "[…]"),
        ("assistant", "Sit still."),
        ("user", "Why?"),
    ]


@pytest.mark.parametrize(
    ("reply", "next_lines"),
    [
        (PASSING_REPLY, "[Margravine] I ask as well.\nWho has it?\n[Wren] Nobody!"),
        ("Tell them, Wren.", "[Wren] Nobody!\n[Margravine] I ask as well.\nWho has it?"),
    ],
)
def test_whom_the_last_line_names_speaks_next_else_the_first_in_the_order(reply: str, next_lines: str) -> None:
    drafted = packaged_arena().draft(NpcArenaDraft(character="hob_tarrant", scene=QUAY))
    turn = drafted.environment.step(drafted.task, (Message(role="assistant", content=reply),))
    assert [message.content for message in turn.messages] == [next_lines]


def test_judges_know_who_is_there_and_what_was_not_heard() -> None:
    panel = ScriptedPanel()
    drafted = packaged_arena().draft(NpcArenaDraft(character="hob_tarrant", scene=QUAY))
    said = [Message(role="assistant", content="Tell them, Wren.")]
    said += drafted.environment.step(drafted.task, tuple(said)).messages
    group = [
        Completion(messages=(*said, Message(role="assistant", content=reply))) for reply in (PASSING_REPLY, "So be it.")
    ]
    scores = asyncio.run(drafted.environment.score(drafted.task, group, Tools(panel=panel)))
    (case,) = panel.cases
    document: Any = case.document
    gates = case.gates or GateFacts(speaker="")
    assert (
        document["scene"]["others"],
        [line["speaker"] for line in document["conversation"]],
        [(event["id"], event["leak_terms"]) for event in document["withheld_events"]],
        case.candidates[0].splitlines()[:2],
        [len(lines) for lines in case.lines],
        gates.unheard_terms,
        [secret.id for secret in gates.secrets][-2:],
        gates.others[:3],
        [take_turns(score) for score in scores],
        [score.flags for score in scores],
    ) == (
        [{"name": "Margravine", "here": "She sits."}, {"name": "Wren", "here": "She coils."}],
        ["player", "npc", "Wren"],
        [("unheard 1", ["under the boat"])],
        ['{"npc": "Tell them, Wren."}', '{"Wren": "Nobody!"}'],
        [1, 2],
        ("under the boat",),
        ["ottoline_vesk: brother", "Wren"],
        ("Margravine", "Wren", "Ottoline Vesk"),
        [1.0, 0.5],
        [(), ("out_of_turn",)],
    )


@pytest.mark.parametrize(("language", "names", "asked", "reply", "move"), MOVES)
def test_a_reply_that_tells_what_another_would_say_is_told_from_one_that_leaves_it_to_the_other(
    language: str, names: list[str], asked: str, reply: str, move: Move
) -> None:
    found = read_move(reply, asked, names, language)
    worth = {"passes": 0.5, "speaks": 1.0, "reports": 0.0}[move]
    assert (found, verify_turns([found], ["allowed"]).value) == (move, worth)


@pytest.mark.parametrize(
    ("replies", "reward", "flags"),
    [
        ([PASSING_REPLY, "*Says nothing.*"], 0.5 * 0.7 + 0.3 * 0.75, ()),
        ([PASSING_REPLY], 0.3 * 0.25, ()),
        (["<think>He asks me?</think>(Says nothing)", PASSING_REPLY], 0.5 * 0.7 + 0.3 * 0.75, ()),
    ],
)
def test_who_says_nothing_at_all_is_paid_by_code_alone(
    replies: list[str], reward: float, flags: tuple[str, ...]
) -> None:
    drafted = packaged_arena().draft(NpcArenaDraft(character="hob_tarrant", scene=QUAY))
    messages: list[Message] = []
    for reply in replies:
        messages.append(Message(role="assistant", content=reply))
        messages += drafted.environment.step(drafted.task, tuple(messages)).messages
    (paid,) = asyncio.run(drafted.environment.score(drafted.task, [Completion(messages=tuple(messages))], TOOLS))
    assert (round(paid.reward or 0.0, 6), paid.flags, paid.judges) == (round(reward, 6), flags, ())


@pytest.mark.parametrize(("change", "field"), TABLE)
def test_a_scene_whose_others_do_not_fit_is_refused_by_field(change: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        packaged_arena().draft(NpcArenaDraft(character="hob_tarrant", scene={**QUAY, **change}))
    assert f"{refused.value.field}: {refused.value.detail}".startswith(field), refused.value.detail


def test_a_draft_is_tried_where_the_sheets_of_others_are_not_at_hand() -> None:
    sheet = packaged_arena().sheets[0].model_dump(mode="json")
    tried = try_draft(NpcArenaDraft(sheet=sheet, scene=QUAY).model_dump_json())
    assert '"kind":"company"' in str(tried)
