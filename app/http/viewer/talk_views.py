"""What the page shows on which people talk to characters. All that was said is untrusted."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from app.domain.playing import PlayReply, PlayTurn
from app.domain.scores import Score
from app.domain.tasks import Message
from app.http.viewer.cards import MessageLine, build_lines
from app.http.viewer.retrieved_passages import RetrievedView, build_retrieved
from app.http.viewer.talk_forms import TalkForm
from app.service.play.play_service import PreparedTurn
from app.service.world_requests import ConversationTurn, Moment
from app.toolkit.display import SHOWN_AT_ALL, Excerpt, cut_excerpt


@dataclass(frozen=True)
class ReplyView:
    """One reply. `said` is its text as the form sends it back."""

    reply: PlayReply
    said: str
    text: Excerpt
    score: Score | None = None


@dataclass(frozen=True)
class TalkState:
    """What the page shows. `turn_id` is empty for what is not kept."""

    form: TalkForm
    said: tuple[MessageLine, ...] = ()
    replies: tuple[ReplyView, ...] = ()
    prompt: tuple[MessageLine, ...] = ()
    retrieved: RetrievedView | None = None
    turn_id: str = ""
    problems: tuple[str, ...] = ()
    notice: str = ""


def build_state(turn: PlayTurn, policies: tuple[str, ...] = (), scores: Sequence[Score] = ()) -> TalkState:
    moment = Moment.model_validate(turn.moment)
    form = TalkForm(
        character=turn.character,
        world=turn.world or "",
        as_of="" if moment.as_of is None else moment.as_of.strftime("%Y-%m-%dT%H:%M:%S"),
        player_name=moment.player_name or "",
        policies=policies or tuple(dict.fromkeys(one.policy for one in turn.replies)),
    )
    return replace(build_unkept(form, moment, turn.replies, scores), turn_id=turn.turn_id)


def build_unkept(
    form: TalkForm, moment: Moment, replies: Sequence[PlayReply], scores: Sequence[Score] = ()
) -> TalkState:
    opened = () if moment.event is None else (ConversationTurn(role="user", content=f"[{moment.event}]"),)
    said = (*moment.conversation, *opened)
    judged: list[Score | None] = [*scores, *[None] * (len(replies) - len(scores))]
    return TalkState(
        form=replace(form, conversation=said, line="", event=""),
        said=build_lines(write_messages(said), SHOWN_AT_ALL),
        replies=tuple(
            ReplyView(one, one.text, cut_excerpt(one.text, SHOWN_AT_ALL), score)
            for one, score in zip(replies, judged, strict=True)
        ),
    )


def add_prompt(state: TalkState, turn: PreparedTurn) -> TalkState:
    placed = turn.task.placed
    return replace(
        state,
        prompt=build_lines(placed.task.messages, SHOWN_AT_ALL),
        retrieved=build_retrieved(placed.context) if turn.played.world else None,
    )


def write_messages(said: Sequence[ConversationTurn]) -> tuple[Message, ...]:
    return tuple(Message(role=one.role, content=one.content) for one in said)


def show_opening(turn: PlayTurn) -> str:
    moment = Moment.model_validate(turn.moment)
    opening = moment.event if moment.event is not None else moment.conversation[-1].content
    return opening[:80]
