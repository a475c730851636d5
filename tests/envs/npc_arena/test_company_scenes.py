"""Scenes with several characters: what the policy and judges read of them, and what shipped scenes pay whom."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping

from app.characters.casting import Cast
from app.characters.company import PASSING_REPLY, SeatTurn
from app.domain.scores import TURN_TAKING, Score
from app.domain.tasks import Completion, Message, Task
from tests.envs.npc_arena.test_traps import TOOLS
from tests.support.packaged_arena import packaged_arena, packaged_tasks

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
