"""Names under which clients ask for a character: `mira@policy-42`, `mira/shore@policy-42`, `mira/shore/<time>@…`.

No client sends fields of its own, and all send the model's name. SillyTavern writes it into every reply and swipe."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, Final

from pydantic import Field, TypeAdapter, ValidationError

from app.characters.casting import Staging
from app.characters.schema import Text
from app.domain.errors import InvalidRequest, NotFound
from app.domain.suggestions import suggest
from app.domain.values import Name
from app.domain.worlds import GameTime

MOST_LISTED: Final = 1000
"""Names in a list of models. Others can be asked for all the same."""
_TIME: Final = TypeAdapter[datetime](GameTime)


class PlayFields(Staging):
    """What a client may say in the field `play` of its request, beside or in place of the model's name."""

    character: Name | None = None
    world: Name | None = None
    policy: Name | None = None
    event: Text | None = None
    """What the character witnesses, in place of a player's line: the conversation then ends with the character's."""
    kind: Annotated[str | None, Field(pattern="^(turn|raw)$")] = None
    """`turn`: answer as the character, whatever the request looks like. `raw`: pass the messages on as they are."""
    narrator: bool = True
    """Whether system messages between lines are a narrator's. False drops them."""


@dataclass(frozen=True)
class PlayedModel:
    """Who is asked, where and when, and which policy plays it."""

    character: str
    policy: str
    world: str | None = None
    as_of: datetime | None = None
    as_of_text: str = ""

    @property
    def name(self) -> str:
        places = "/".join([self.character, self.world or "", self.as_of_text])
        return f"{places.rstrip('/')}@{self.policy}"


def list_model_names(characters: Sequence[str], policies: Sequence[str], worlds: Sequence[str]) -> list[str]:
    """Each character with each policy, then in each world."""
    return [name for name, _ in zip(_iterate_names(characters, policies, worlds), range(MOST_LISTED), strict=False)]


def _iterate_names(characters: Sequence[str], policies: Sequence[str], worlds: Sequence[str]) -> Iterator[str]:
    for place in ("", *(f"/{world}" for world in worlds)):
        yield from (f"{character}{place}@{policy}" for character in characters for policy in policies)


def read_model(name: str, fields: PlayFields, policies: Sequence[str], characters: Sequence[str]) -> PlayedModel:
    """NotFound for a policy or character that is not there; InvalidRequest for a name of another form, and for fields
    that say something else."""
    left, at, policy = name.rpartition("@")
    places = (left if at else policy).split("/", 2)
    character, world, time = (*places, "", "", "")[:3]
    asked = fields.policy or (policy if at else "") or (policies[0] if len(policies) == 1 else "")
    _require_same("policy", fields.policy, policy if at else "")
    _require_same("character", fields.character, character)
    _require_same("world", fields.world, world)
    if not policies:
        raise NotFound("no policy is configured: name one under `policies` in the settings", field="model")
    _require_known("policy", asked, policies)
    character = _require_known("character", fields.character or character, characters)
    model = PlayedModel(character, asked, fields.world or world or None, fields.as_of)
    if not time:
        return model
    try:
        return replace(model, as_of=fields.as_of or _TIME.validate_python(time), as_of_text=time)
    except ValidationError:
        raise InvalidRequest(f"{time[:40]!r} is no time such as 1312-04-03T09:15:00Z", field="model") from None


def _require_same(what: str, given: str | None, named: str) -> None:
    if given and named and given != named:
        raise InvalidRequest(f"the model's name says {named[:64]!r}", field=f"play.{what}")


def _require_known(what: str, name: str, known: Sequence[str]) -> str:
    if name not in known:
        told = f"there is no {what} {name[:64]!r}{suggest(name[:64], known)}" if name else f"name a {what}"
        raise NotFound(f"{told} (a model is `character@policy` or `character/world@policy`)", field="model")
    return name
