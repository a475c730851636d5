"""Labels of samples: the task that a sample answers and the group it is compared in."""

import json
from typing import Annotated, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, ValidationError

from app.domain.errors import InvalidRequest
from app.domain.runs import Purpose
from app.domain.values import WholeNumber
from app.service.request_models import TaskId

MAX_CHARACTERS: Final = 20_000
MAX_GROUP: Final = 256

_EXPECTED = 'expected a task id, or {"task_id": …} with optional "group" and "size"'


def _convert_group_name(value: object) -> object:
    """Accepts numbers and null: data sets number their groups, or have none in most rows."""
    if value is None:
        return ""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _default_purpose(value: object) -> object:
    """Accepts null: merged data sets have no purpose in some rows."""
    return "train" if value is None else value


class SampleLabel(BaseModel):
    """Other members are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    task_id: TaskId
    group: Annotated[
        str, BeforeValidator(_convert_group_name), Field(max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")
    ] = ""
    """Samples for one task with different groups are never compared."""
    size: Annotated[WholeNumber, Field(ge=1, le=MAX_GROUP)] | None = None
    """The group's size; by default the URL's `group_size`."""
    purpose: Annotated[Purpose, BeforeValidator(_default_purpose)] = "train"


def read_label(label: JsonValue, field: str) -> SampleLabel:
    """Parses a label. Raises InvalidRequest naming `field` if it is invalid."""
    if isinstance(label, str):
        label = _parse_text(label.strip(), field)
    if not isinstance(label, dict):
        raise InvalidRequest(_EXPECTED, field=field)
    try:
        return SampleLabel.model_validate(label)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join([field, *map(str, first["loc"])])
        raise InvalidRequest(f"{first['msg']}; {_EXPECTED}", field=place) from None


def _parse_text(text: str, field: str) -> JsonValue:
    if len(text) > MAX_CHARACTERS:
        raise InvalidRequest(f"longer than {MAX_CHARACTERS} characters; {_EXPECTED}", field=field)
    if not text.startswith("{"):
        return {"task_id": text}
    try:
        value: JsonValue = json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidRequest(f"invalid JSON; {_EXPECTED}", field=field) from None
    return value
