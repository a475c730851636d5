"""What becomes of turns: what a key may reach, and what is refused before anything is stored."""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from app.characters.loading import read_sheet
from app.characters.scenes import Scene
from app.domain.access import KeyBounds
from app.domain.errors import Conflict, GatewayError, InvalidRequest, RetrieverFailed, TooLarge
from app.domain.labels import ImportedLabel, Labeller
from app.domain.scores import Score
from app.domain.tasks import Message
from app.features.authoring.model import AuthoredChange
from app.features.play import service
from app.features.play.model import PlayReply, PlayTurn
from app.features.play.service import (
    GateReading,
    PlayCaller,
    PlayedModel,
    PlayFields,
    PlayTurns,
    build_change,
    name_kept_file,
    read_gates,
    read_model,
)
from app.features.play.stand_in import STAND_IN
from app.features.worlds.service import Moment
from app.toolkit.templates import find_packaged_folder
from tests.support.tables import read_table

NOW = datetime(2030, 1, 1, tzinfo=UTC)
ANYBODY = PlayCaller("one", KeyBounds(), "ada")


def reply(name: str, text: str = "Aye.", failure: str | None = None) -> PlayReply:
    return PlayReply(reply_id=name, policy="warm", model="m", text=text, retrieval_failure=failure, created_at=NOW)


def turn(*replies: PlayReply) -> PlayTurn:
    said = {"character": "hob_tarrant", "conversation": [{"role": "user", "content": "Hob?"}]}
    return PlayTurn(
        turn_id="turn_a", player="one", character="hob", world="shore", moment=said, created_at=NOW, replies=replies
    )


class OneTurn:
    """A store, a service of labels and a player of one turn that write down what is asked of them."""

    def __init__(self, turn: PlayTurn, failure: str | None = None) -> None:
        self.asked: list[object] = []
        self._turn = turn
        self._failure = failure

    async def get(self, player: str, turn_id: str) -> PlayTurn:
        return self._turn

    async def mark_better(self, player: str, turn_id: str, reply_id: str) -> bool:
        self.asked.append(reply_id)
        return True

    async def replace_choice(self, by: Labeller, chat: str, label: ImportedLabel | None) -> None:
        self.asked.append((by, chat, None if label is None else label.choice.chosen))

    async def prepare(self, *_: object) -> Any:
        task = SimpleNamespace(messages=(Message(role="user", content="Hob?"),), tools=())
        return SimpleNamespace(
            moment=Moment.model_validate(self._turn.moment),
            passages=(),
            earlier=(),
            retrieval_failure=self._failure,
            task=SimpleNamespace(placed=SimpleNamespace(task=task)),
        )

    async def keep_scene(self, character: str, scene: Scene, author: str) -> None:
        self.asked.append((character, scene.player, scene.exemplar, author))


def build_turns(of: Any) -> PlayTurns:
    return PlayTurns(
        store=of, playing=of, labels=of, panels=of, keep_scene=of.keep_scene, clock=lambda: NOW, keep_days=1
    )


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


ACTS: dict[str, Callable[[PlayTurns, PlayCaller], Coroutine[Any, Any, Any]]] = {
    "get": lambda turns, caller: turns.get(caller, "turn_a"),
    "better": lambda turns, caller: turns.mark_better(caller, "turn_a", "a", consent=True),
    "keep": lambda turns, caller: turns.keep(caller, "turn_a", "example", "a"),
    "judge": lambda turns, caller: turns.judge(caller, "turn_a"),
}


@pytest.mark.parametrize("act", ACTS)
def test_a_key_reaches_turns_of_its_own_worlds_alone(act: str) -> None:
    of = OneTurn(turn(reply("a"), reply("b", "No.")))
    with pytest.raises(GatewayError, match="shore"):
        run(ACTS[act](build_turns(of), PlayCaller("one", KeyBounds(worlds=("pier",)))))
    assert of.asked == []


@pytest.mark.parametrize("act", ["better", "keep"])
@pytest.mark.parametrize(
    ("then", "now", "error"), [("it is down", None, Conflict), (None, "it is down", RetrieverFailed)]
)
def test_what_was_said_without_retrieval_is_neither_kept_nor_a_label(
    act: str, then: str | None, now: str | None, error: type[Exception]
) -> None:
    of = OneTurn(turn(reply("a", failure=then), reply("b", "No.")), now)
    with pytest.raises(error, match="it is down"):
        run(ACTS[act](build_turns(of), ANYBODY))
    assert of.asked == []


@pytest.mark.parametrize("act", ["better", "keep"])
def test_a_conversation_with_a_line_of_the_stand_in_is_neither_kept_nor_a_label(act: str) -> None:
    said = [*turn().moment["conversation"], {"role": "assistant", "content": "Aye. (stand-in)"}]  # type: ignore[misc]
    later = {"character": "hob_tarrant", "conversation": [*said, said[0]]}
    of = OneTurn(turn(reply("a"), reply("b", "No.")).model_copy(update={"moment": later}))
    with pytest.raises(Conflict, match="the stand-in said a line of this conversation"):
        run(ACTS[act](build_turns(of), ANYBODY))
    assert of.asked == []


@pytest.mark.parametrize(
    ("policy", "own_draft", "why"),
    [(STAND_IN, False, "turns of the stand-in are not stored"), ("warm", True, "turns with a draft are not stored")],
)
def test_turns_of_the_stand_in_and_of_drafts_are_not_stored(policy: str, own_draft: bool, why: str) -> None:
    of = OneTurn(turn())
    replies = [reply("a"), reply("b").model_copy(update={"policy": policy})]
    said: Any = SimpleNamespace(played=PlayedModel("hob", policy, own_draft=own_draft))
    with pytest.raises(Conflict, match=why):
        run(build_turns(of).add(said, "one", replies))
    assert of.asked == []


@pytest.mark.parametrize(
    "replies",
    [
        [reply("a"), *(reply(f"r{number}", f"No. {number}") for number in range(201))],
        [reply("a", "x" * 200_001), reply("b", "No.")],
        [reply("a"), reply("b", "No.", "it was down")],
        [reply("a")],
    ],
    ids=["many", "long", "without retrieval", "alone"],
)
def test_what_makes_no_label_marks_nothing(replies: list[PlayReply]) -> None:
    of = OneTurn(turn(*replies))
    with pytest.raises(InvalidRequest):
        run(build_turns(of).mark_better(ANYBODY, "turn_a", "a", consent=True))
    assert of.asked == []


@pytest.mark.parametrize(("consent", "chosen"), [(True, "Aye."), (False, None)])
def test_every_choice_takes_the_place_of_the_turns_label(consent: bool, chosen: str | None) -> None:
    of = OneTurn(turn(reply("a"), reply("b", "No.")))
    marked = run(build_turns(of).mark_better(ANYBODY, "turn_a", "a", consent=consent))
    player = Labeller("one", verified=True)
    made = [] if chosen is None else [(player, "turn_a", chosen)]
    assert (of.asked, [one.better for one in marked.replies]) == (
        [(player, "turn_a", None), "a", *made],
        [True, False],
    )


def test_a_kept_scene_has_its_author() -> None:
    of = OneTurn(turn(reply("a")))
    scene = run(build_turns(of).keep(ANYBODY, "turn_a", "example", "a"))
    assert (of.asked, scene.exemplar) == ([("hob", "Hob?", "Aye.", "ada")], "Aye.")


def test_what_makes_no_scene_is_refused_by_its_field() -> None:
    of = OneTurn(turn(reply("a", "x" * 200_000)))
    with pytest.raises(InvalidRequest, match="this makes no scene: `exemplar`: ") as refused:
        run(build_turns(of).keep(ANYBODY, "turn_a", "example", "a"))
    assert (of.asked, refused.value.field) == ([], "turn")


@pytest.mark.parametrize(
    ("score", "reason", "reading"),
    [
        (Score.unscored("judge_failed").model_copy(update={"candidate": "A"}), "stop", GateReading()),
        (Score.gated("breaks_character"), "length", GateReading(("breaks_character", "truncated"))),
        (Score.unscored("internal", "it broke"), "stop", GateReading((), "it broke")),
        (Score.unscored("environment_unavailable"), "stop", GateReading((), "environment_unavailable")),
    ],
)
def test_gates_that_break_are_not_gates_that_notice_nothing(score: Score, reason: str, reading: GateReading) -> None:
    assert read_gates([score], reason) == reading


@pytest.mark.parametrize("character", ["hob", "h" * 59, "h" * 60, "h" * 64])
def test_files_of_kept_scenes_have_names_that_can_be_stored(character: str) -> None:
    assert AuthoredChange(file=name_kept_file(character), text="", based_on=0).file.startswith("scenes/kept_h")


def test_a_file_of_kept_scenes_grows_until_it_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    sheet = read_sheet(find_packaged_folder("character_sheets") / "hob_tarrant.yaml")
    scenes = [Scene(id=f"kept-{name}", kind="conversation", split="train", player="Hob?") for name in "ab"]
    first = build_change(sheet, scenes[0], None, 0)
    both = build_change(sheet, scenes[1], first.text, 1)
    monkeypatch.setattr(service, "MAX_AUTHORED", 200)
    with pytest.raises(TooLarge, match="would hold more than 200 characters"):
        build_change(sheet, scenes[1].model_copy(update={"player": "Hob? " * 50}), both.text, 2)
    assert (both.text or "").count("kept-a") + (both.text or "").count("kept-b") == 2


@pytest.mark.parametrize(("played", "name"), read_table(__file__, "model_names.yaml", list[tuple[PlayedModel, str]]))
def test_models_are_named_as_they_can_be_asked_for(played: PlayedModel, name: str) -> None:
    assert (played.name, read_model(name, PlayFields(), ["p"], ["hob"])) == (name, played)
