"""Rows of IFEval, and of the training sets of its form.

    key                   optional; in the metadata
    prompt                the text of the task
    instruction_id_list   kinds, by their published names
    kwargs                the arguments of each, in the same order; those without a value are left out

or, as open-instruct has them:

    messages              the first message of a user is the text of the task
    ground_truth          a Python literal (read as such, never run) or JSON: a list with one
                          `{"instruction_id": [...], "kwargs": [...]}`

In the first form what is unknown is broken. The second form has kinds of other benchmarks too: rows with one of those
are left out.
"""

import ast
import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from app.domain.sources import leave_out
from app.envs.instruction_following.ifeval_arguments import ARGUMENTS, IfevalInstruction
from app.envs.instruction_following.ifeval_languages import list_languages

_LONGEST_LITERAL = 100_000


def parse_literal(value: object) -> object:
    """What a text spells, in JSON or as a Python literal: cells of CSV are texts. Anything else is left as it is."""
    if not isinstance(value, str):
        return value
    if len(value) > _LONGEST_LITERAL:
        raise ValueError(f"a list has at most {_LONGEST_LITERAL:,} characters")
    for parse in (json.loads, ast.literal_eval):
        try:
            return parse(value)
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            continue
    raise ValueError("it is neither JSON nor a Python literal")


def _build_instructions(kinds: object, kwargs: object) -> list[dict[str, Any]]:
    """ValueError if the two do not belong together."""
    if not isinstance(kinds, list | tuple) or not isinstance(kwargs, list | tuple):
        raise ValueError("the instructions and their arguments are lists")
    if not kinds:
        raise ValueError("there is no instruction")
    if len(kinds) != len(kwargs):
        raise ValueError(f"{len(kinds)} instructions with arguments for {len(kwargs)}")
    given = [{} if one is None else one for one in kwargs]
    if not all(isinstance(one, Mapping) for one in given):
        raise ValueError("the arguments of an instruction are an object")
    return [{"id": kind, "arguments": dict(one)} for kind, one in zip(kinds, given, strict=True)]


Spelled = Annotated[Any, BeforeValidator(parse_literal)]


class _InstructionRow(BaseModel):
    model_config = ConfigDict(frozen=True)

    @property
    def task_text(self) -> str:
        raise NotImplementedError

    @property
    def instructions(self) -> tuple[IfevalInstruction, ...]:
        raise NotImplementedError

    @property
    def name(self) -> str:
        return ""

    def _require_tellable(self, instructions: Sequence[IfevalInstruction]) -> None:
        codes = {one.arguments.language for one in instructions if one.id == "language:response_language"}
        unknown = sorted(code for code in codes if code.casefold().split("-")[0] not in list_languages())
        if unknown:
            raise leave_out("a reply is to be in a language that cannot be told here")


class IfevalRow(_InstructionRow):
    key: Annotated[str, BeforeValidator(str)] = ""
    prompt: Annotated[str, Field(min_length=1)]
    instruction_id_list: Spelled
    arguments: Annotated[Spelled, Field(validation_alias="kwargs")]

    @property
    def task_text(self) -> str:
        return self.prompt

    @property
    def name(self) -> str:
        return self.key

    @property
    def instructions(self) -> tuple[IfevalInstruction, ...]:
        """What there is to check."""
        built = _build_instructions(self.instruction_id_list, self.arguments)
        return tuple(IfevalInstruction.model_validate(one) for one in built)

    @model_validator(mode="after")
    def _check(self) -> "IfevalRow":
        self._require_tellable(self.instructions)
        return self


class IfevalTrainingRow(_InstructionRow):
    messages: Spelled
    ground_truth: Spelled

    @property
    def task_text(self) -> str:
        said = [one for one in self.messages if isinstance(one, Mapping) and one.get("role") == "user"]
        return str(said[0].get("content", "")) if said else ""

    @property
    def instructions(self) -> tuple[IfevalInstruction, ...]:
        truth = parse_literal(self.ground_truth)
        only = truth[0] if isinstance(truth, list | tuple) and len(truth) == 1 else truth
        if not isinstance(only, Mapping) or not {"instruction_id", "kwargs"} <= set(only):
            raise ValueError("`ground_truth` is not a list with one object of instruction_id and kwargs")
        built = _build_instructions(only["instruction_id"], only["kwargs"])
        if any(one["id"] not in ARGUMENTS for one in built):
            raise leave_out("it has an instruction that is not one of IFEval's 25")
        return tuple(IfevalInstruction.model_validate(one) for one in built)

    @model_validator(mode="after")
    def _check(self) -> "IfevalTrainingRow":
        if not isinstance(self.messages, list | tuple) or not self.task_text.strip():
            raise ValueError("`messages` has no message of a user")
        self._require_tellable(self.instructions)
        return self
