"""The form of the page on which people talk to characters: what was sent, and the moment that it describes."""

from dataclasses import dataclass, replace
from typing import Final

from pydantic import TypeAdapter, ValidationError

from app.domain.errors import InvalidRequest
from app.http.viewer.forms import FormFields, pick_field
from app.service.play.played_models import PlayFields
from app.service.world_requests import ConversationTurn, Moment

MAX_FORM: Final = 4 * 1024 * 1024
MOST_POLICIES: Final = 4
"""Side by side."""
_CONVERSATION: Final = TypeAdapter(tuple[ConversationTurn, ...])


@dataclass(frozen=True)
class TalkForm:
    """Who is asked, where and when, by which policies, and what was said so far."""

    character: str = ""
    world: str = ""
    as_of: str = ""
    player_name: str = ""
    policies: tuple[str, ...] = ()
    line: str = ""
    event: str = ""
    conversation: tuple[ConversationTurn, ...] = ()
    keeps: bool = True

    def write_conversation(self) -> str:
        """For the form's hidden field."""
        return _CONVERSATION.dump_json(self.conversation).decode()

    def build_fields(self) -> PlayFields:
        """InvalidRequest naming the field that is wrong."""
        given = {"world": self.world, "player_name": self.player_name, "as_of": _add_zone(self.as_of)}
        try:
            return PlayFields.model_validate({name: value for name, value in given.items() if value})
        except ValidationError as error:
            raise refuse(error) from None

    def build_moment(self, fields: PlayFields) -> Moment:
        """InvalidRequest naming the field that is wrong."""
        if bool(self.line.strip()) == bool(self.event.strip()):
            raise InvalidRequest("write what you say, or what happens: one of them", field="line")
        said = [*self.conversation, *([ConversationTurn(role="user", content=self.line)] if self.line.strip() else [])]
        try:
            return Moment(
                character=self.character,
                as_of=fields.as_of,
                player_name=fields.player_name,
                conversation=tuple(said),
                event=self.event.strip() or None,
            )
        except ValidationError as error:
            raise refuse(error) from None


def read_form(sent: FormFields) -> TalkForm:
    """InvalidRequest for a conversation that is none."""
    form = TalkForm(
        character=pick_field(sent, "character").strip(),
        world=pick_field(sent, "world").strip(),
        as_of=pick_field(sent, "as_of").strip(),
        player_name=pick_field(sent, "player_name").strip(),
        policies=tuple(dict.fromkeys(sent.get("policy", ())))[:MOST_POLICIES],
        line=pick_field(sent, "line").strip(),
        event=pick_field(sent, "event").strip(),
        keeps=pick_field(sent, "store").strip() != "false",
    )
    try:
        said = _CONVERSATION.validate_json(pick_field(sent, "conversation").strip() or "[]")
        going_on = pick_field(sent, "go_on").strip()
        if said and said[-1].role == "user" and going_on:
            said = (*said, ConversationTurn(role="assistant", content=going_on))
    except ValidationError as error:
        raise refuse(error) from None
    return replace(form, conversation=said)


def _add_zone(text: str) -> str:
    """Browsers send times without a zone."""
    return f"{text}Z" if text and "Z" not in text.upper() and "+" not in text else text


def refuse(error: ValidationError) -> InvalidRequest:
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    return InvalidRequest(str(first["msg"]), field=".".join(map(str, first["loc"])) or None)
