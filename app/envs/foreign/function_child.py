"""The program that calls a reward function of others, in an interpreter that has its packages. Standard library only;
nothing of the service is imported here.

It reads calls from stdin and answers on stdout, both lines of JSON: `{"id", "call", ...}` and `{"id", "result"}` or
`{"id", "error"}`. What functions print goes to stderr. It ends when stdin does.

Three signatures are known, told apart by the names of their parameters:

    batch   TRL's: `completions` and further lists by name; a list comes back
    verl    `solution_str` and `ground_truth`, with or without `data_source` and `extra_info`
    pair    a completion and a reference

The function is called in the main thread and outside of any event loop: math graders set alarms, and some functions run
a loop of their own.
"""

import asyncio
import importlib
import importlib.util
import inspect
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

Json = dict[str, Any]

_MOST_WORDS: Final = 300
COMPLETIONS: Final[Sequence[str]] = (
    *("completion", "response", "solution_str", "model_output", "output", "prediction", "pred", "text", "reply"),
    *("generation", "model_response", "predicted", "predict_str", "content"),
)
REFERENCES: Final[Sequence[str]] = (
    *("ground_truth", "reference", "gold", "target", "answer", "expected", "solution", "label", "ref", "truth"),
    *("expected_answer", "correct_answer", "gt"),
)
"""Names of parameters, the likelier first."""
_GIVEN: Final[Sequence[str]] = ("completion_ids", "trainer_state", "log_extra", "log_metric")
"""What TRL gives beside the columns."""


class Refused(Exception):
    """It cannot be called, with the reason."""


# Finding the function


def find_function(target: str) -> Callable[..., Any]:
    """Of `file.py:name` or `package.module:name`."""
    where, _, name = target.rpartition(":")
    module = _load_file(Path(where)) if where.endswith(".py") else importlib.import_module(where)
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            offered = ", ".join(one for one in vars(module) if callable(getattr(module, one)) and one[0] != "_")
            raise Refused(f"{where} has no {name}; it has {offered or 'no functions'}")
        found = getattr(found, part)
    if not callable(found):
        raise Refused(f"{target} is no function but a {type(found).__name__}")
    return found  # type: ignore[no-any-return]


def _load_file(file: Path) -> Any:
    if not file.is_file():
        raise Refused(f"there is no file {file}")
    sys.path.insert(0, str(file.absolute().parent))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise Refused(f"{file} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


# Its signature


class Signature:
    """How a function is called."""

    def __init__(self, function: Callable[..., Any], columns: Sequence[str], answer_column: str) -> None:
        """`columns` are those of the rows, `answer_column` that of the right answer. Refused where a parameter gets
        nothing."""
        try:
            parameters = inspect.signature(function).parameters
        except (TypeError, ValueError) as error:
            raise Refused(f"its signature cannot be read: {error}") from None
        self.takes_all = any(one.kind is one.VAR_KEYWORD for one in parameters.values())
        named = [one for one in parameters.values() if one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL)]
        self.names = [one.name for one in named]
        self.needed = [one.name for one in named if one.default is one.empty]
        self.shape = "batch" if "completions" in self.names else "verl" if "solution_str" in self.names else "pair"
        self.completion, self.reference = self._find_roles(named)
        self._require_values(columns, answer_column)

    def _find_roles(self, named: Sequence[inspect.Parameter]) -> tuple[str, str]:
        """The parameters for the reply and for the right answer; of a batch the latter is found among those that no
        column fills."""
        if self.shape == "batch":
            return "completions", ""
        if self.shape == "verl":
            return "solution_str", "ground_truth" if "ground_truth" in self.names else ""
        first = [name for name in COMPLETIONS if name in self.names] or [one.name for one in named[:1]]
        rest = [one.name for one in named if one.name not in first[:1]]
        second = [name for name in REFERENCES if name in rest] or rest[:1]
        if not first or not second:
            raise Refused(
                f"its parameters are {', '.join(self.names) or 'none'}: needed are `completions` and further lists, or "
                "a completion and a reference"
            )
        return first[0], second[0]

    def _require_values(self, columns: Sequence[str], answer_column: str) -> None:
        known = {self.completion, self.reference, "prompts", *_GIVEN, "data_source", "extra_info"}
        lacking = [name for name in self.needed if name not in known and name not in columns]
        if self.shape == "batch" and answer_column not in self.names:
            # The right answer may be called otherwise in the rows than in the function.
            likely = [name for name in REFERENCES if name in lacking]
            self.reference = likely[0] if likely else ""
            lacking = [name for name in lacking if name != self.reference]
        if lacking:
            raise Refused(f"no column for its parameter {lacking[0]}; the rows have {', '.join(columns)}")

    def build_arguments(self, asked: Json) -> Json:
        if self.shape == "batch":
            return self._build_batch(asked)
        columns: Json = asked["columns"]
        values = {
            **{name: value for name, value in columns.items() if name in self.names},
            "data_source": columns.get("data_source", ""),
            "extra_info": columns.get("extra_info"),
            self.completion: asked["texts"][0],
            self.reference: asked["reference"],
        }
        needed = {self.completion, self.reference, "data_source", "extra_info", *self.needed, *columns}
        return {name: value for name, value in values.items() if name in self.names and name in needed}

    def _build_batch(self, asked: Json) -> Json:
        texts = asked["texts"]
        in_messages = asked["way"] == "messages"
        replies = [[{"role": "assistant", "content": text}] if in_messages else text for text in texts]
        columns = {**asked["columns"], asked["answer_column"]: asked["reference"]}
        if self.reference:
            columns[self.reference] = asked["reference"]
        values: Json = {
            **{name: [value] * len(texts) for name, value in columns.items() if name.isidentifier()},
            "prompts": [asked["messages"] if in_messages else asked["prompt"]] * len(texts),
            "completions": replies,
            "completion_ids": [list(text.encode("utf-8", "replace")) for text in texts],
            "trainer_state": None,
            "log_extra": _ignore,
            "log_metric": _ignore,
        }
        return {name: value for name, value in values.items() if self.takes_all or name in self.names}


def _ignore(*_: Any, **__: Any) -> None:
    pass


# Its answers


def read_reward(value: Any) -> Json:
    """A number, and else what came in its place. A pair and a list of one count as their first, an object as its
    `score` or `reward`."""
    if isinstance(value, Mapping):
        value = next((value[name] for name in ("score", "reward") if name in value), value)
    if isinstance(value, tuple | list) and value:
        return read_reward(value[0])
    if hasattr(value, "item") and not isinstance(value, str | bytes):  # of numpy and torch
        value = value.item()
    if isinstance(value, bool | int | float):
        number = float(value)
        return {"reward": number} if math.isfinite(number) else {"trouble": "no number", "words": repr(number)}
    return {"trouble": "no number", "words": repr(value)[:_MOST_WORDS]}


def describe_error(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}"[:_MOST_WORDS].split())


class Calls:
    """What the service may call."""

    def __init__(self) -> None:
        self._loaded: Loaded | None = None

    def load(self, target: str, here: str, folders: list[str], columns: list[str], answer_column: str) -> Json:
        os.chdir(here)
        sys.path[:0] = folders or [here]
        function = find_function(target)
        signature = Signature(function, columns, answer_column)
        self._loaded = Loaded(function, signature)
        return {"shape": signature.shape, "reference": signature.reference}

    def grade(self, **asked: Any) -> list[Json]:
        """One answer for each text."""
        if self._loaded is None:
            raise Refused("nothing was loaded")
        return self._loaded.grade(asked)


class Loaded:
    """A function with its signature."""

    def __init__(self, function: Callable[..., Any], signature: Signature) -> None:
        self._function = function
        self._signature = signature

    def grade(self, asked: Json) -> list[Json]:
        if self._signature.shape == "batch":
            return self._call(asked, len(asked["texts"]))
        return [one for text in asked["texts"] for one in self._call({**asked, "texts": [text]}, 1)]

    def _call(self, asked: Json, count: int) -> list[Json]:
        began = time.perf_counter()
        try:
            value = self._function(**self._signature.build_arguments(asked))
            if inspect.isawaitable(value):
                value = asyncio.run(_wait_for(value))
            answers = list(self._read(value, count))
        except (Exception, SystemExit) as error:  # whatever a function raises
            answers = [{"trouble": "raised", "words": describe_error(error)}] * count
        seconds = (time.perf_counter() - began) / count
        return [{**one, "seconds": seconds} for one in answers]

    def _read(self, value: Any, count: int) -> Iterator[Json]:
        if self._signature.shape != "batch":
            yield read_reward(value)
            return
        listed = list(value)
        if len(listed) != count:
            words = f"{len(listed)} rewards for {count} completions"
            yield from [{"trouble": "no number", "words": words}] * count
            return
        yield from map(read_reward, listed)


async def _wait_for(value: Any) -> Any:
    return await value


# Lines

CALLS: Final = ("load", "grade")


def answer(calls: Calls, request: Json) -> Json:
    number, name = request.pop("id"), request.pop("call")
    if name not in CALLS:
        return {"id": number, "error": f"there is no call {name}"}
    try:
        return {"id": number, "result": getattr(calls, name)(**request)}
    except Refused as error:
        return {"id": number, "error": str(error)}
    except (Exception, SystemExit) as error:  # whatever a module raises when it is imported
        return {"id": number, "error": describe_error(error)}


def take_streams() -> tuple[int, int]:
    """Copies of stdin and stdout that no process started from here gets."""
    orders, answers = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    return orders, answers


def run() -> None:
    orders, answers = take_streams()
    calls = Calls()
    with os.fdopen(orders, "rb") as lines:
        for line in lines:
            request = json.loads(line)
            if "abandon" in request:
                continue
            left = memoryview(json.dumps(answer(calls, request)).encode() + b"\n")
            while left:
                left = left[os.write(answers, left) :]
    os._exit(0)  # threads and exit handlers of packages need not agree


if __name__ == "__main__":
    run()
