"""Scripted episodes: the next line of a scripted player, and transcripts for judges and gates."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from app.characters.scenes import Scene
from app.characters.word_matching import split_spoken_words
from app.domain.errors import InvalidRequest
from app.domain.judging import GateFacts, SpokenLine
from app.domain.scores import Score
from app.domain.tasks import Completion, Message, Turn
from app.toolkit.answers.committed import strip_thinking
from app.toolkit.replay import score_forgery

ReplyFilter = Callable[[str], str]
"""Extracts what the player hears of a reply: not its thinking."""

ATTENTION = 4_000
"""Characters of a reply that a scripted player reacts to."""


@dataclass(frozen=True)
class SceneEpisode:
    """One run of a scene. `replies` are as the model wrote them, `heard` as the player heard them."""

    scene: Scene
    replies: tuple[str, ...]
    heard: tuple[str, ...]

    @classmethod
    def from_completion(cls, scene: Scene, completion: Completion, hear: ReplyFilter) -> "SceneEpisode":
        """A plain text is an episode of one reply. What comes after the scene's end is ignored. InvalidRequest for
        messages that the scene did not give."""
        if completion.messages is None:
            return cls(scene, (completion.answer,), (hear(completion.answer),))
        return cls.replay(scene, completion.messages[: _count_messages(scene)], hear)

    @classmethod
    def replay(cls, scene: Scene, messages: Sequence[Message], hear: ReplyFilter) -> "SceneEpisode":
        """From everything after the prompt. InvalidRequest naming `messages[i]` for the first that is out of turn, is
        not what the player said there, or comes after the end."""
        replies: list[str] = []
        heard: list[str] = []
        for place, message in enumerate(messages):
            field = f"messages[{place}]"
            if place % 2 == 0:
                if message.role != "assistant":
                    raise InvalidRequest("here the character speaks: an assistant message", field=field)
                if len(replies) > len(scene.turns):
                    raise InvalidRequest("the scene was over before", field=field)
                replies.append(message.content or "")
                heard.append(hear(message.content or ""))
            elif message != find_player_line(scene, heard):
                raise InvalidRequest("this is not what the player said here", field=field)
        return cls(scene, tuple(replies), tuple(heard))

    def write_transcript(self) -> str:
        """One JSON object a line, so that nothing in a reply can pass for a line of the player. Straight quotation
        marks become typographic ones, which a judge can quote as it reads them."""
        lines: list[str] = []
        for number, said in enumerate(self.heard):
            lines.append(_write_line("npc", said))
            if number + 1 < len(self.heard):
                lines.append(_write_line("player", self.scene.turns[number].choose_line(_normalise_reply(said))))
        return "\n".join(lines)

    def list_lines(self, facts: GateFacts) -> tuple[SpokenLine, ...]:
        """Each reply with what was said before it; a single empty reply if there is none."""
        spoken: list[SpokenLine] = []
        player_said, history = facts.player_said, facts.history
        for number, reply in enumerate(self.replies or ("",)):
            if number:
                earlier = self.heard[number - 1]
                history = (*history, earlier)
                player_said = "\n".join(
                    (player_said, self.scene.turns[number - 1].choose_line(_normalise_reply(earlier)))
                )
            known = facts.model_copy(update={"player_said": player_said, "history": history})
            spoken.append(SpokenLine(text=reply, gates=known))
        return tuple(spoken)


@dataclass(frozen=True)
class CandidateEntry:
    """What judges see of a completion; `lines` as in a case."""

    text: str
    lines: tuple[SpokenLine, ...] = ()
    flags: tuple[str, ...] = ()
    """Added to the judges' flags."""
    messages: tuple[Message, ...] = ()
    """The episode that `text` tells."""


def build_entry(scene: Scene, completion: Completion, facts: GateFacts, hear: ReplyFilter) -> CandidateEntry | Score:
    """What judges get, or the score of a forged transcript, which needs no judge."""
    if scene.max_turns == 1:
        return CandidateEntry(completion.answer)
    try:
        episode = SceneEpisode.from_completion(scene, completion, hear)
    except InvalidRequest as error:
        return score_forgery(error)
    flags = ("after_end",) if len(completion.messages or ()) > _count_messages(scene) else ()
    return CandidateEntry(episode.write_transcript(), episode.list_lines(facts), flags, completion.messages or ())


def _count_messages(scene: Scene) -> int:
    """Messages of a whole episode: a reply after each line of the player's, the one in the prompt included."""
    return 2 * len(scene.turns) + 1


def find_next_turn(scene: Scene, messages: Sequence[Message], hear: ReplyFilter) -> Turn:
    """What follows the character's last line. InvalidRequest as in a replay, and if that line is missing."""
    episode = SceneEpisode.replay(scene, messages, hear)
    if len(messages) % 2 == 0:
        field = f"messages[{len(messages) - 1}]" if messages else "messages"
        raise InvalidRequest("the last message must be the character's", field=field)
    said = find_player_line(scene, episode.heard)
    return Turn(messages=() if said is None else (said,), done=said is None)


def find_player_line(scene: Scene, heard: Sequence[str]) -> Message | None:
    """What the player says after these replies; None if the scene is over."""
    if not heard or len(heard) > len(scene.turns):
        return None
    return Message(role="user", content=scene.turns[len(heard) - 1].choose_line(_normalise_reply(heard[-1])))


def _normalise_reply(reply: str) -> str:
    """The words of a reply in the form that conditions are matched against, with one space around each."""
    return f" {' '.join(split_spoken_words(reply[:ATTENTION]))} "


def _write_line(speaker: str, text: str) -> str:
    plain = " ".join(text.replace('"', "”").split())
    return json.dumps({speaker: plain}, ensure_ascii=False)


def extract_spoken(reply: str) -> str:
    return strip_thinking(reply).text.strip()


def add_flags(score: Score, entry: CandidateEntry) -> Score:
    return score.model_copy(update={"flags": (*score.flags, *entry.flags)}) if entry.flags else score
