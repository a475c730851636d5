"""The query of `GET /groups`."""

from dataclasses import dataclass, fields
from typing import Annotated, get_args

from fastapi import Query
from pydantic import AfterValidator, AwareDatetime, Field

from app.domain.access import KeyBounds
from app.domain.groups import GroupFilter, GroupOrder
from app.domain.runs import Purpose
from app.domain.scores import Outcome, Reason
from app.domain.text_search import parse_text_query
from app.domain.values import Name
from app.service.request_models import TaskId

Limit = Annotated[int, Query(ge=1, le=500)]
_Step = Annotated[int | None, Query(ge=-(2**53), le=2**53)]
_Number = Annotated[float | None, Query(allow_inf_nan=False)]
_ORDERS = "|".join(get_args(GroupOrder))


def _require_words(text: str | None) -> str | None:
    if text is not None and parse_text_query(text) is None:
        raise ValueError("must have a letter or a digit")
    return text


@dataclass(frozen=True)
class GroupQuery:
    """Every field narrows what is found."""

    env: Annotated[str | None, Query(max_length=100)] = None
    run: Annotated[str | None, Query(max_length=100)] = None
    outcome: Outcome | None = None
    purpose: Purpose | None = None
    task_id: TaskId | None = None
    label: Annotated[str | None, Query(max_length=200, description="The task's label, such as the character.")] = None
    scene: Annotated[str | None, Query(max_length=100, description="The task's scene, by its id.")] = None
    model: Annotated[str | None, Query(max_length=200, description="The policy's model.")] = None
    judge: Annotated[Name | None, Query(description="A judge that read the group for its own scores.")] = None
    flag: Annotated[str | None, Query(max_length=200, description="Of the group or of a completion.")] = None
    reason: Annotated[Reason | None, Query(description="Why a completion has no score.")] = None
    min_step: _Step = None
    max_step: _Step = None
    min_mean: _Number = None
    max_mean: _Number = None
    min_std: _Number = None
    max_std: _Number = None
    since: AwareDatetime | None = None
    until: Annotated[AwareDatetime | None, Query(description="Earlier than this.")] = None
    text: Annotated[
        str | None,
        AfterValidator(_require_words),
        Query(max_length=200, description='Words of prompts, completions or rationales; "phrases" in quotes.'),
    ] = None
    before: Annotated[int | None, Query(ge=0, lt=2**63)] = None
    sort: Annotated[
        str | None,
        Field(pattern=f"^-?({_ORDERS})$"),
        Query(description="Sorts what was found among the groups looked at; with a minus the largest first."),
    ] = None
    skip: Annotated[int, Query(ge=0, le=100_000, description="How many of what was found to skip.")] = 0
    limit: Limit = 50

    def build_filter(self, bounds: KeyBounds) -> GroupFilter:
        given = {
            each.name: getattr(self, each.name) for each in fields(self) if each.name not in {"env", "sort", "text"}
        }
        sort = self.sort or ""
        placed = {"environment": self.env, "environments": bounds.environments, "runs": bounds.runs}
        order = {"order": sort.removeprefix("-") or None, "descending": sort.startswith("-")}
        text = None if self.text is None else parse_text_query(self.text)
        return GroupFilter.model_validate({**given, **placed, **order, "text": text})
