"""Players that models play: the next line of an episode, and the lines that a completion claims they said.

A line is stored before anybody sees it, under the digest of its task and of all that was said before. So the same
episode gets the same lines from every replica, after a kill, and when it is scored anew. What a player answers is
checked by the environment's rules, and discarded lines are asked for again. Where none is usable the episode ends, and
is `unscored` (`player_failed`): a policy never pays for its player. Where the player's server fails, whoever steps
again has it asked again.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from pydantic import BaseModel

from app.domain.errors import Conflict, InvalidRequest, PlayerFailed
from app.domain.judging import Judgement, PanelResult
from app.domain.players import PLAYER_PURPOSE, PlayedLine, PlayerChoice, PlayerLine, StoredLines
from app.domain.scores import Score
from app.domain.tasks import Completion, Message, Turn
from app.domain.values import digest_of_list, is_same_model, suggest
from app.ports.players import Player, PlayerLineStore, PlayerModel
from app.service.requests import SingleFlight
from app.toolkit.replay import iterate_turns, score_forgery

ASKED_AT_MOST: Final = 3
"""How often a model is asked for one line: once, and twice more with what was wrong."""
_MOST_ANSWERS: Final = 20
"""Newest answers that are kept of a turn whose server fails again and again."""

ParamsT = TypeVar("ParamsT", bound=BaseModel)


@dataclass(frozen=True)
class Transcript:
    """An episode as its player knows it. `said` has an answer to each of `heard` but, after a reply, the last. `keys`
    are those of the player's turns, one after each reply."""

    task_id: str
    heard: tuple[str, ...]
    said: tuple[str, ...]
    keys: tuple[str, ...]

    @classmethod
    def read(cls, task_id: str, player: Player, messages: Sequence[Message]) -> "Transcript":
        """InvalidRequest naming `messages[i]` for the first that is out of turn."""
        heard: list[str] = []
        said: list[str] = []
        keys: list[str] = []
        key = task_id
        for _, message in iterate_turns(messages, player.most_replies):
            words = player.hear(message) if message.role == "assistant" else message.content or ""
            key = digest_of_list([key, words])
            if message.role == "assistant":
                heard.append(words)
                keys.append(key)
            else:
                said.append(words)
        return cls(task_id, tuple(heard), tuple(said), tuple(keys))

    @property
    def awaits_player(self) -> bool:
        return len(self.heard) > len(self.said)

    def find_lost(self, lines: StoredLines) -> str | None:
        """The first message of the player of which nothing is stored. None where one before it was forged or was the
        last: a key holds all that was said before, so nothing is stored of what follows."""
        for number, words in enumerate(self.said):
            played = lines.get(self.keys[number])
            if played is None:
                return f"messages[{2 * number + 1}]"
            if played.line is None or played.line.say != words or played.line.done:
                return None
        return None

    def require_stored(self, lines: StoredLines) -> None:
        """InvalidRequest naming the first message that the player did not say."""
        for number, words in enumerate(self.said):
            field = f"messages[{2 * number + 1}]"
            line = _find_line(lines, self.keys[number])
            if line is None or line.say != words or not words:
                raise InvalidRequest("this is not what the player said here", field=field)
            if number and self._said_last(lines, number - 1):
                raise InvalidRequest("the episode was over before", field=field)

    def is_over(self, player: Player, lines: StoredLines) -> bool:
        """Whether no line of the player can follow."""
        return len(self.heard) == player.most_replies or (
            bool(self.said) and self._said_last(lines, len(self.said) - 1)
        )

    def find_failure(self, lines: StoredLines) -> str | None:
        """Why the player did not go on after the last reply; None where it did, or was not asked."""
        played = lines.get(self.keys[-1]) if self.keys and self.awaits_player else None
        return played.fault if played is not None and played.line is None else None

    def _said_last(self, lines: StoredLines, number: int) -> bool:
        line = _find_line(lines, self.keys[number])
        return line is not None and line.done


def _find_line(lines: StoredLines, key: str) -> PlayerLine | None:
    played = lines.get(key)
    return None if played is None else played.line


@dataclass(frozen=True)
class CheckedEpisodes:
    """Completions of one task, compared with what its player said. `refused` has for each a score that it gets unread;
    None where it is sound."""

    refused: tuple[Score | None, ...]
    judgements: tuple[Judgement, ...]
    """The answers that their lines took."""

    def list_sound(self, completions: Sequence[Completion]) -> list[Completion]:
        return [one for one, score in zip(completions, self.refused, strict=True) if score is None]

    def complete(self, judged: PanelResult) -> PanelResult:
        """The result for all, from that for the sound ones. Readings keep their places."""
        scores = iter(judged.scores)
        return judged.model_copy(
            update={
                "scores": tuple([next(scores) if score is None else score for score in self.refused]),
                "judgements": (*judged.judgements, *self.judgements),
            }
        )


class PlayedEpisodes:
    """Asks models that play players, and compares transcripts with what they said."""

    def __init__(self, models: Mapping[str, PlayerModel], lines: PlayerLineStore) -> None:
        """`models`: by the name of their policy."""
        self._models = models
        self._lines = lines
        self._flights = SingleFlight[PlayedLine]("a player could not be asked")

    def name_version(self, params: ParamsT, judges: Collection[str]) -> ParamsT:
        """The params with the version of each model that one of them names as a `PlayerChoice`, so that the tasks are
        of this version alone. `judges` are the models that judge there. InvalidRequest for a policy that plays no
        players, for a version that it has not, and for a model that would be judge and player."""
        named = {
            name: self._name_version_of(value, f"params.{name}", judges)
            for name, value in params
            if isinstance(value, PlayerChoice)
        }
        return params.model_copy(update=named) if named else params

    def _name_version_of(self, chosen: PlayerChoice, field: str, judges: Collection[str]) -> PlayerChoice:
        model = self._models.get(chosen.policy)
        if model is None:
            near = suggest(chosen.policy, self._models)
            raise InvalidRequest(
                f"no policy {chosen.policy!r} plays players{near}: it needs `as_player` in the settings",
                field=f"{field}.policy",
            )
        if chosen.version not in ("", model.version):
            raise InvalidRequest(f"{chosen.policy} is now of version {model.version}", field=f"{field}.version")
        if not model.may_be_judge and any(is_same_model(model.model, judge) for judge in judges):
            raise InvalidRequest(
                f"{chosen.policy} is the model of a judge too; choose another, or set `as_player.allow_judge`",
                field=f"{field}.policy",
            )
        return chosen.model_copy(update={"version": model.version})

    async def step(self, task_id: str, player: Player, messages: Sequence[Message]) -> Turn:
        """What the player says after the last message. InvalidRequest for lines that it did not say; PlayerFailed where
        its server gives no answer; Conflict where it would be another model now."""
        transcript = Transcript.read(task_id, player, messages)
        if not transcript.awaits_player:
            field = f"messages[{len(messages) - 1}]" if messages else "messages"
            raise InvalidRequest("the last message must be the character's", field=field)
        lines = await self._lines.find_lines(transcript.keys)
        transcript.require_stored(lines)
        if transcript.is_over(player, lines):
            return Turn(messages=(), done=True)
        played = lines.get(transcript.keys[-1])
        if played is None or played.passing:
            played = await self._ask_once(player, transcript, () if played is None else played.made)
        if played.passing:
            raise PlayerFailed(played.fault)
        if played.line is None or not played.line.say:
            return Turn(messages=(), done=True)
        return Turn(messages=(Message(role="user", content=played.line.say),), done=False)

    async def check(self, task_id: str, player: Player, completions: Sequence[Completion]) -> CheckedEpisodes:
        """Compares what the completions claim with what the player said. StoreUnavailable."""
        # In a thread: replies may be long, and each is heard whole.
        read = await asyncio.to_thread(lambda: [_read_completion(task_id, player, one) for one in completions])
        keys = {key for one in read if isinstance(one, Transcript) for key in one.keys}
        lines = await self._lines.find_lines(keys) if keys else {}
        refused = tuple([_check_transcript(one, lines) for one in read])
        made = [judgement for key in sorted(lines) for judgement in lines[key].made]
        return CheckedEpisodes(refused, tuple(made))

    async def _ask_once(self, player: Player, transcript: Transcript, before: tuple[Judgement, ...]) -> PlayedLine:
        """Shielded: a line is paid for, and another may wait for the same one."""
        key = transcript.keys[-1]
        flight = self._flights.find([key]).get(key)
        return await asyncio.shield(flight or self._flights.start([key], self._ask(key, player, transcript, before)))

    async def _ask(self, key: str, player: Player, transcript: Transcript, before: tuple[Judgement, ...]) -> PlayedLine:
        model = self._require_model(player.choice)
        made, fault = [*before], ""
        for _ in range(ASKED_AT_MOST):
            prompt = player.build_prompt(transcript.heard, transcript.said, fault)
            answer = (await model.ask(prompt)).model_copy(update={"purpose": PLAYER_PURPOSE, "reading": key})
            if answer.error is not None:
                failed = f"the player {player.choice.policy} gave no answer: {answer.error}"
                kept = (*made, answer)[-_MOST_ANSWERS:]
                return await self._lines.put(key, transcript.task_id, PlayedLine(fault=failed, passing=True, made=kept))
            line = player.read_answer(answer.raw, transcript.heard, transcript.said)
            if isinstance(line, PlayerLine):
                return await self._lines.put(key, transcript.task_id, PlayedLine(line=line, made=(*made, answer)))
            fault = line
            made.append(answer.model_copy(update={"error": f"discarded: {fault}", "failure": "unusable"}))
        failed = f"no line of the player {player.choice.policy} was usable; the last one: {fault}"
        return await self._lines.put(key, transcript.task_id, PlayedLine(fault=failed, made=tuple(made)))

    def _require_model(self, choice: PlayerChoice) -> PlayerModel:
        model = self._models.get(choice.policy)
        if model is None:
            raise PlayerFailed(f"the policy {choice.policy} plays no players now")
        if model.version != choice.version:
            raise Conflict(
                f"the player {choice.policy} is another model now than when the task was handed out", field="task_id"
            )
        return model


def _read_completion(task_id: str, player: Player, completion: Completion) -> Transcript | Score:
    """A plain text is an episode of one reply. What comes after the longest episode is ignored."""
    messages = completion.messages
    if messages is None:
        messages = (Message(role="assistant", content=completion.answer),)
    try:
        return Transcript.read(task_id, player, messages[: 2 * player.most_replies - 1])
    except InvalidRequest as error:
        return score_forgery(error)


def _check_transcript(read: Transcript | Score, lines: StoredLines) -> Score | None:
    if isinstance(read, Score):
        return read
    lost = read.find_lost(lines)
    if lost is not None:
        # Pruned, lost with the store's last moments, or never asked for. A model forges nothing: its player's lines are
        # the trainer's.
        return Score.unscored("player_failed", f"no line of the player is stored for {lost}")
    try:
        read.require_stored(lines)
    except InvalidRequest as error:
        return score_forgery(error)
    failure = read.find_failure(lines)
    return None if failure is None else Score.unscored("player_failed", failure)
