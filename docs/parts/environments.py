"""The gallery: what each discovered environment is, asks and pays, with its first task as it is handed out."""

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from textwrap import dedent

from pydantic import BaseModel, TypeAdapter

from app.datasets.configured_datasets import ConfiguredDatasets
from app.domain.tasks import Message, Task, ToolSpec
from app.domain.values import Frozen, canonical_json
from app.http.api.environment_routes import SPLITS, describe_environment
from app.main.components import discover
from app.ports.environment import Environment
from app.toolkit.procedural import LEVELS, DatasetParams, LevelParams
from app.toolkit.templates import read_packaged_data
from docs.markdown import code, fenced, table
from docs.parts.instructions import instruction_counting, instruction_kinds, instruction_tricks
from docs.parts.reasoning_gym import package_families
from docs.parts.schemas import Fields
from docs.parts.text_to_sql import sql_questions, sql_tricks

PROMPT_WORDS = 100
"""Words of a message that the gallery shows: enough to see its form."""
PAGES = Path(__file__).resolve().parents[1]
MORE = {"npc_arena": ("characters", "worlds", "judging", "npc_finetuning_report")}
"""Pages about an environment beside the one that has its name."""
LISTS: Mapping[str, Mapping[str, Callable[[], str]]] = {
    "instruction_following": {
        "How texts are counted": instruction_counting,
        "Kinds of rules": instruction_kinds,
        "Replies to a request about a violin in a harbour (four sentences, no comma, *again* at the end)": (
            instruction_tricks
        ),
    },
    "reasoning_gym": {"Families": package_families},
    "text_to_sql": {"Shapes of questions": sql_questions, "Answers to a question that counts rows": sql_tricks},
}
"""What the code of an environment lists, under its own words."""


class SharedParams(LevelParams, DatasetParams):
    """What many environments have alike."""


SHARED = Fields(SharedParams)


@cache
def environments() -> Mapping[str, Environment]:
    """Ours, by name; those that other packages add are documented there."""
    ours = {name: found for name, found in sorted(discover().items()) if found.__module__.startswith("app.envs.")}
    return {name: found.open(ConfiguredDatasets({})) for name, found in ours.items()}


def overview() -> str:
    rows = [
        (
            f"[{name}](#{name})",
            describe_environment(type(environment)),
            _count_turns(environment),
            _name_scorer(environment),
            ", ".join(LEVELS) if issubclass(environment.Params, LevelParams) else "",
            _worst(environment),
        )
        for name, environment in environments().items()
    ]
    return table(("environment", "what is asked", "turns", "scored by", "levels", "paid without doing it"), rows)


class _Measured(Frozen):
    first: tuple[int, int]
    note: str = ""


def first_rung() -> str:
    """Measured by hand, with the command that stands above the table."""
    read = read_packaged_data(Path(__file__).with_name("first_rung.yaml"), TypeAdapter(dict[str, _Measured]))
    rows = [(f"[{name}](#{name})", _share_of(one.first), one.note) for name, one in sorted(read.items())]
    return table(("environment", "solved", "what a task of `first` is"), rows)


def _share_of(pair: tuple[int, int]) -> str:
    right, tried = pair
    return f"{right / tried:.0%} of {tried}"


def _count_turns(environment: Environment) -> str:
    return "several" if environment.multi_turn else "one"


def _name_scorer(environment: Environment) -> str:
    if environment.rubric is not None:
        return "judges"
    return "running it" if environment.runs_programs else "a verifier"


def gallery() -> str:
    entries = [_entry(environment) for environment in environments().values()]
    return "\n\n".join(["## Shared params", _shared_params(), *entries])


def _entry(environment: Environment) -> str:
    return "\n\n".join(_paragraphs(environment))


def _paragraphs(environment: Environment) -> Iterator[str]:
    yield f"## {environment.name}"
    yield describe_environment(type(environment))
    yield _facts(environment)
    yield from _docstring(environment)
    if environment.Params.model_fields:
        yield f"`params`: {inspect.cleandoc(environment.Params.__doc__ or '')}".strip()
        yield _params(environment.Params)
    if environment.rubric is not None:
        yield "Criteria:"
        criteria = environment.rubric.criteria
        yield table(("criterion", "weight", "asks"), [(code(c.name), f"{c.weight:g}", c.description) for c in criteria])
    yield from _free_rewards(environment)
    for title, build in LISTS.get(environment.name, {}).items():
        yield f"{title}:"
        yield build()
    yield from _first_task(environment)


def _facts(environment: Environment) -> str:
    """What the table at the head of the page does not say already; its code, and where there is more to read."""
    defaults = environment.Params()
    sizes = {split: environment.size(split, defaults) for split in SPLITS}
    tasks = ", ".join(f"{split} {'endless' if size is None else f'{size:,}'}" for split, size in sizes.items())
    path = "/".join(type(environment).__module__.split("."))
    names = [name for name in (environment.name, *MORE.get(environment.name, ())) if (PAGES / f"{name}.md").exists()]
    links = [f"[code](../{path}.py)", *(f"[{name}]({name}.md)" for name in names)]
    rubric = () if environment.rubric is None else (f"rubric {environment.rubric.name}",)
    return "; ".join((f"Version {environment.version}", *rubric, f"tasks: {tasks}", ", ".join(links))) + "."


def _docstring(environment: Environment) -> Iterator[str]:
    """What its module says of itself, behind the first paragraph. Examples are indented there."""
    text = inspect.cleandoc(sys.modules[type(environment).__module__].__doc__ or "")
    for part in text.split("\n\n")[1:]:
        yield fenced(dedent(part)) if part.startswith("    ") else part


def find_worst_share(environment: Environment) -> tuple[float, str]:
    """The highest stated share, and its strategy; `chance` is that of another task's answer."""
    shares = {stated.strategy: stated.share or 0.0 for stated in environment.free_rewards}
    return max((share, strategy) for strategy, share in {"foreign_answer": environment.chance, **shares}.items())


def _worst(environment: Environment) -> str:
    share, strategy = find_worst_share(environment)
    return "" if environment.rubric is not None else f"{share:.1%}, {code(strategy)}" if share else "none found"


def _free_rewards(environment: Environment) -> Iterator[str]:
    if environment.free_rewards:
        rows = [
            (code(one.strategy), "not measured" if one.share is None else f"{one.share:.1%}", one.because)
            for one in environment.free_rewards
        ]
        yield "Paid without doing the task, at most:"
        yield table(("strategy", "paid", "why"), rows)


def _params(model: type[BaseModel]) -> str:
    fields = Fields(model)
    rows = [_param(fields, name, name in SharedParams.model_fields) for name in model.model_fields]
    return table(("name", "type", "default", "meaning"), rows)


def _param(fields: Fields, name: str, shareable: bool) -> tuple[str, str, str, str]:
    if shareable and fields.meaning(name) == SHARED.meaning(name):
        return code(name), "[shared](#shared-params)", fields.default(name), ""
    return code(name), fields.type_in_words(name), fields.default(name), fields.meaning(name)


def _shared_params() -> str:
    rows = [
        (code(name), SHARED.type_in_words(name), SHARED.default(name), SHARED.meaning(name))
        for name in SharedParams.model_fields
    ]
    return table(("name", "type", "default", "meaning"), rows)


def _first_task(environment: Environment) -> Iterator[str]:
    task = environment.task("train", 0, environment.Params())
    yield "First training task:"
    yield fenced("\n\n".join([*map(_message, task.messages), *map(_tool, task.tools)]))
    if task.metadata:
        yield f"Its metadata: {code(canonical_json(task.metadata))}"
    yield from _gold(environment, task)


def _gold(environment: Environment, task: Task) -> Iterator[str]:
    gold = environment.gold(task)
    if gold is None:
        yield "There is no reply that is sure to earn 1."
    else:
        yield "A reply that earns 1:"
        yield fenced(gold.text if gold.text is not None else "\n\n".join(map(_message, gold.messages or ())))


def _message(message: Message) -> str:
    calls = [f"{call.function.name}({_arguments(call.function.arguments)})" for call in message.tool_calls]
    return "\n".join([f"[{message.role}]", *([_shorten(message.content)] if message.content else []), *calls])


def _shorten(text: str) -> str:
    """The beginning of a long message."""
    ends = [word.end() for word in re.finditer(r"\S+", text)]
    if len(ends) <= PROMPT_WORDS:
        return text
    return f"{text[: ends[PROMPT_WORDS - 1]]} [… and {len(ends) - PROMPT_WORDS:,} words more]"


def _arguments(arguments: object) -> str:
    return arguments if isinstance(arguments, str) else canonical_json(arguments)


def _tool(tool: ToolSpec) -> str:
    return f"[tool] {tool.function.name}: {tool.function.description}"
