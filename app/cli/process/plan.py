"""The plan of `process`, and the setup that a resumed run must share."""

import json
from dataclasses import dataclass
from typing import Literal

from pydantic import JsonValue, TypeAdapter, ValidationError

from app.domain.values import Frozen, Name, Split
from app.service.request_models import MixMember

To = Literal["jsonl", "atropos"]

_NAME = TypeAdapter(Name)


class ProcessSetup(Frozen):
    """Options that must stay the same when a journal is resumed."""

    mix: tuple[MixMember, ...]
    run: str
    by_cursor: bool
    model: str
    step: int | None = None
    """Training step that groups are stored under."""
    group_size: int
    to: To


@dataclass(frozen=True)
class ProcessPlan:
    setup: ProcessSetup
    limit: int | None
    batch_size: int
    hands: int
    """Concurrent tasks."""
    lease_seconds: float
    first_cursor: int

    @property
    def policy(self) -> dict[str, JsonValue]:
        return {"model": self.setup.model, "step": self.setup.step}

    def build_request(self, batch_size: int, cursor: int | None) -> dict[str, JsonValue]:
        """The body of `POST /next-batch`."""
        how: dict[str, JsonValue] = {"lease_seconds": self.lease_seconds} if cursor is None else {"cursor": cursor}
        if cursor is None and self.setup.step is not None:
            how["policy"] = {"step": self.setup.step}
        mix: list[JsonValue] = [member.model_dump(mode="json") for member in self.setup.mix]
        return {"mix": mix, "run": self.setup.run, "batch_size": batch_size, **how}


def parse_mix(env: str | None, mix: str | None, split: Split, params: str | None) -> tuple[MixMember, ...]:
    """ValueError naming the invalid option."""
    if (env is None) == (mix is None):
        raise ValueError("give either --env or --mix")
    if mix is None:
        return (_parse_member("--env", str(env), "1", split, parse_params(params)),)
    if params is not None:
        raise ValueError("--params needs --env; environments in --mix use their default params")
    parts = [part.strip().partition("=") for part in mix.split(",") if part.strip()]
    if not parts:
        raise ValueError("--mix names no environment")
    return tuple(_parse_member("--mix", name, weight or "1", split, {}) for name, _, weight in parts)


def check_run_name(name: str, option: str = "--run") -> str:
    try:
        return _NAME.validate_python(name)
    except ValidationError as error:
        raise ValueError(f"{option}: use at most 64 lower-case letters, digits, - and _") from error


def _parse_member(option: str, name: str, weight: str, split: Split, params: dict[str, JsonValue]) -> MixMember:
    try:
        number: float | str = float(weight)
    except ValueError:
        number = weight
    try:
        return MixMember.model_validate({"env": name, "weight": number, "split": split, "params": params})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise ValueError(f"{option} {name}: {first['loc'][0]}: {first['msg']}") from error


def parse_params(text: str | None) -> dict[str, JsonValue]:
    return parse_object("--params", text or "{}")


def parse_object(option: str, text: str) -> dict[str, JsonValue]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{option} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ValueError(f"{option} is not a JSON object")
    return value
