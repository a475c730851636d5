"""Tool calling: what is right earns 1, and whatever is nearly right earns nothing."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import get_args

import pytest
from pydantic import JsonValue

from app.datasets.configured_datasets import ConfiguredDatasets
from app.domain.scores import Criterion, Score
from app.domain.tasks import Completion, FunctionCall, FunctionSpec, Message, Task, ToolCall, ToolSpec
from app.domain.values import Frozen, Split
from app.envs.tool_calling.environment import ToolCalling, ToolCallingParams
from app.envs.tool_calling.requests import MOST_CHARACTERS, OPENS, TEST_SIZE, Category, ToolRequest, is_right_refusal
from app.ports.environment import Tools
from app.service.judging import NoPanel
from app.toolkit.tool_calls.calls import ExpectedCall, ParsedCall, match_calls
from app.toolkit.tool_calls.formats import FORMATS, ToolFormat
from tests.support.event_loop import finish
from tests.support.tables import read_table
from tests.support.tiers import examples


class Tables(Frozen):
    named: dict[str, bool]
    taken_back: tuple[str, ...]
    honest: tuple[str, ...]
    own_words: dict[str, bool]


TABLES = read_table(__file__, "refusals.yaml", Tables)

TOOLS = Tools(panel=NoPanel())
CATEGORIES: tuple[Category, ...] = get_args(Category)
COUNT = examples(1_000, fewest=50)

pytestmark = pytest.mark.deep

every_split = pytest.mark.parametrize("split", get_args(Split))


@lru_cache
def environment() -> ToolCalling:
    return ToolCalling.open(ConfiguredDatasets({}))


@lru_cache
def tasks(category: Category, split: Split, count: int = COUNT) -> tuple[Task, ...]:
    params = ToolCallingParams(categories=(category,))
    return tuple(environment().task(split, index, params) for index in range(count))


def rewards(task: Task, *group: Completion) -> list[float | None]:
    return [score.reward for score in finish(environment().score(task, group, TOOLS))]


def request(task: Task) -> ToolRequest:
    return ToolRequest.model_validate(task.reference)


def refusable(said: str, domain: str = "weather", **more: object) -> ToolRequest:
    """A request for which no tool fits."""
    message = Message(role="user", content=said)
    return ToolRequest.model_validate(
        {"category": "irrelevance", "domain": domain, "messages": (message,), "tools": (), **more}
    )


def calls_of(task: Task) -> list[ParsedCall]:
    return [one.build_minimal_call() for one in request(task).expected]


def native(calls: Sequence[ParsedCall]) -> Completion:
    made = (ToolCall(function=FunctionCall(name=call.name, arguments=call.arguments)) for call in calls)
    return Completion(messages=(Message(role="assistant", tool_calls=tuple(made)),))


def _edited(call: ParsedCall, arguments: dict[str, JsonValue]) -> ParsedCall:
    return ParsedCall(name=call.name, arguments=arguments)


def invented(calls: list[ParsedCall]) -> list[ParsedCall]:
    return [_edited(calls[0], {**calls[0].arguments, "invented_argument": "high"}), *calls[1:]]


def as_text(calls: list[ParsedCall]) -> list[ParsedCall]:
    """Every number and truth value as a text; a call whose values are all texts already, as numbers."""
    call = next(call for call in calls if call.arguments)
    texts: dict[str, JsonValue] = {
        name: json.dumps(value) if not isinstance(value, str) else 7 for name, value in call.arguments.items()
    }
    return [_edited(call, texts), *(one for one in calls if one is not call)]


def duplicated(calls: list[ParsedCall]) -> list[ParsedCall]:
    return [*calls, calls[-1]]


def misnamed(calls: list[ParsedCall]) -> list[ParsedCall]:
    return [ParsedCall(name=calls[0].name.upper() + "_", arguments=calls[0].arguments), *calls[1:]]


def one_left_out(calls: list[ParsedCall]) -> list[ParsedCall]:
    return calls[1:]


NEARLY: tuple[Callable[[list[ParsedCall]], list[ParsedCall]], ...] = (
    *(invented, as_text, duplicated, misnamed, one_left_out),
)


@pytest.mark.parametrize("category", [one for one in CATEGORIES if one != "irrelevance"])
@every_split
@pytest.mark.parametrize("spoil", NEARLY, ids=lambda spoil: spoil.__name__)
def test_what_is_nearly_right_earns_nothing(
    category: Category, split: Split, spoil: Callable[[list[ParsedCall]], list[ParsedCall]]
) -> None:
    asked = [(task, calls_of(task)) for task in tasks(category, split)]
    spoilt = [(task, calls) for task, calls in asked if any(call.arguments for call in calls)]
    paid = [task.metadata for task, calls in spoilt if rewards(task, native(spoil(calls))) != [0.0]]
    assert (paid, len(spoilt) > 0.8 * COUNT) == ([], True)


@pytest.mark.parametrize("category", [one for one in CATEGORIES if one != "irrelevance"])
@every_split
def test_a_missing_argument_earns_nothing(category: Category, split: Split) -> None:
    """Each argument in turn, but for one whose value is its default."""
    paid = []
    for task in tasks(category, split):
        schemas = {tool.function.name: tool.function.parameters["properties"] for tool in request(task).tools}
        calls = calls_of(task)
        without: dict[tuple[int, str], Completion] = {}
        for place, call in enumerate(calls):
            for name, value in call.arguments.items():
                properties = schemas[call.name]
                schema = properties[name] if isinstance(properties, dict) else None
                if isinstance(schema, dict) and schema.get("default") == value and "default" in schema:
                    continue
                rest = {key: kept for key, kept in call.arguments.items() if key != name}
                without[place, name] = native([*calls[:place], _edited(call, rest), *calls[place + 1 :]])
        scored = zip(without, rewards(task, *without.values()), strict=True)
        paid += [(task.metadata["index"], *missing) for missing, reward in scored if reward != 0.0]
    assert paid == []


@every_split
@pytest.mark.slow
def test_the_order_counts_in_lists_and_not_in_sets(split: Split) -> None:
    """A list is a set where its schema says that its items are unique."""
    wrong, sets = [], 0
    for task in tasks("simple", split, 1_000):
        (call,) = calls_of(task)
        properties = request(task).tools[0].function.parameters["properties"]
        for name, value in call.arguments.items():
            schema = properties[name] if isinstance(properties, dict) else None
            if isinstance(value, list) and value != value[::-1] and isinstance(schema, dict):
                is_set = schema.get("uniqueItems") is True
                sets += is_set
                if rewards(task, native([_edited(call, {**call.arguments, name: value[::-1]})])) != [float(is_set)]:
                    wrong.append((task.metadata["index"], name))
    assert (wrong, sets > 50) == ([], True)


@every_split
def test_where_no_tool_fits_a_call_earns_nothing(split: Split) -> None:
    paid = []
    for task in tasks("irrelevance", split):
        gold = environment().gold(task).text or ""
        call = ParsedCall(name=request(task).tools[0].function.name, arguments={})
        both = Completion(text=f"{gold}\n{FORMATS['hermes'].write([call])}")
        prompt = "\n".join(message.content or "" for message in task.messages)
        listed = Completion(text=f"{OPENS} " + "x" * MOST_CHARACTERS + gold)
        group = (native([call]), both, Completion(text=f"{OPENS} {prompt}" * 9), Completion(text=OPENS), listed)
        if (
            rewards(task, *group, Completion(text=gold.removeprefix(OPENS)), Completion(text=f" Well. {gold}"))
            != [0.0] * 7
        ):
            paid.append(task.metadata["index"])
    assert paid == []


@every_split
def test_a_refusal_where_a_tool_fits_earns_nothing(split: Split) -> None:
    refusal = Completion(text=f"{OPENS} what is missing is everything.")
    paid = [
        task.metadata
        for category in CATEGORIES
        if category != "irrelevance"
        for task in tasks(category, split)
        if rewards(task, refusal) != [0.0]
    ]
    assert paid == []


@pytest.mark.parametrize("form", FORMATS)
def test_a_declared_format_is_in_the_prompt_and_the_only_one_paid(form: ToolFormat) -> None:
    params = ToolCallingParams(tool_format=form, categories=("several",))
    task = environment().task("train", 3, params)
    other = next(name for name in FORMATS if name != form)
    calls = calls_of(task)
    said = rewards(task, environment().gold(task), Completion(text=FORMATS[other].write(calls)), native(calls))
    instructed = FORMATS[form].instruction in (task.messages[0].content or "")
    assert (said, instructed, task.tools) == ([1.0, 0.0, 1.0], True, ())


@pytest.mark.parametrize("form", FORMATS)
def test_a_native_task_takes_every_format(form: ToolFormat) -> None:
    task = tasks("parallel", "train")[5]
    assert rewards(task, Completion(text=FORMATS[form].write(calls_of(task)))) == [1.0]


def test_a_fifth_of_the_tasks_has_no_call_as_its_answer() -> None:
    metadata = [environment().task("test", index, ToolCallingParams()).metadata for index in range(TEST_SIZE)]
    share = sum(one["category"] == "irrelevance" for one in metadata) / TEST_SIZE
    assert share == 0.2


def test_a_score_says_what_was_right_and_what_was_not() -> None:
    task = tasks("several", "train")[0]
    calls = calls_of(task)
    (score,) = finish(environment().score(task, [native(calls[:1])], TOOLS))
    assert score == Score(
        outcome="scored",
        reward=0.0,
        gate=1.0,
        absolute=0.0,
        criteria=(
            Criterion(name="correct", value=0.0, weight=1.0),
            Criterion(name="precision", value=1.0, weight=0.0, note="calls that were asked for"),
            Criterion(name="recall", value=1 / len(calls), weight=0.0, note="what was asked for and called"),
            Criterion(name="ours", value=0.0, weight=0.0, note="by our rule of texts"),
            Criterion(name="published", value=0.0, weight=0.0, note="by BFCL's rule of texts"),
        ),
        rationale="calls are missing",
    )


def test_a_call_that_cannot_be_read_is_flagged() -> None:
    (score,) = finish(environment().score(tasks("simple", "train")[0], [Completion(text="<tool_call>")], TOOLS))
    assert (score.reward, score.flags, score.rationale) == (
        0.0,
        ("malformed_call",),
        "the reply cannot be read: the JSON cannot be read",
    )


def test_a_right_refusal_beside_a_call_that_cannot_be_read_earns_nothing() -> None:
    task = environment().task("train", 0, ToolCallingParams(categories=("irrelevance",)))
    call = ToolCall(function=FunctionCall(name=task.tools[0].function.name, arguments="{"))
    said = Message(role="assistant", content=environment().gold(task).text, tool_calls=(call,))
    (score,) = finish(environment().score(task, [Completion(messages=(said,))], TOOLS))
    assert (score.reward, score.flags) == (0.0, ("malformed_call",))


@pytest.mark.slow
def test_a_refusal_for_everything_pays_little() -> None:
    """Whoever knows every word, and puts the best of them together, is paid for a sixteenth of a fifth of the tasks."""
    own = [request(task) for task in tasks("irrelevance", "train", 1_000)]
    counts = Counter(word for one in own for word in (*one.missing, *one.subject))
    text, paid = OPENS, 0
    for word, _ in counts.most_common(150):
        longer = f"{text} {word},"
        share = sum(is_right_refusal(longer, one) for one in own)
        if share > paid:
            text, paid = longer, share
    assert 0.0 < paid / len(own) < 0.08


@pytest.mark.parametrize(("said", "right"), [*TABLES.named.items()])
def test_a_refusal_may_name_a_few_other_things_and_is_no_list_of_guesses(said: str, right: bool) -> None:
    asked = refusable(
        "Run the scene.",
        domain="smart_home",
        missing=("scene", "scenes"),
        excluded=("smart home", "home", "devices", "time zone", "time", "zone", "city", "date"),
    )
    assert is_right_refusal(f"{OPENS} {said}", asked) is right


@pytest.mark.parametrize(
    "opening",
    [
        *("**No tool fits:** ", "no tool fits: ", "NO TOOL FITS. ", "No tool fits - ", "No tool fits — "),
        "*No tool fits*: ",
    ],
)
def test_a_refusal_may_open_in_another_case_markup_or_sign(opening: str) -> None:
    asked = refusable("What will the weather be like?", missing=("city",), subject=("weather", "forecast"))
    said = ("the city for the forecast is missing.", "the city is missing.", "the weather.", "")
    assert [is_right_refusal(f"{opening}{words}", asked) for words in said] == [True, False, False, False]


def test_a_refusal_that_takes_itself_back_earns_nothing() -> None:
    """Also where what takes it back stands in the same sentence."""
    paid = [
        (task.metadata["index"], added)
        for task in tasks("irrelevance", "train", 60)
        for added in TABLES.taken_back
        for gold in [environment().gold(task).text or ""]
        if is_right_refusal(gold.removesuffix(".") + added, request(task))
        or is_right_refusal(gold + added, request(task))
    ]
    assert paid == []


OPENINGS = (*("Hi! ", "Hello. ", "One thing, please. ", "Quick one. ", "Good morning! ", "OK, next. "),)


def test_a_clause_of_the_request_says_what_is_missing_for_what() -> None:
    """In the form that the instruction gives: the first word for what is missing, and the user's own sentence."""
    said: list[tuple[str, bool]] = []
    for task in tasks("irrelevance", "train", 300):
        asked = request(task)
        clause = asked.messages[-1].content or ""
        for opening in OPENINGS:
            clause = clause.removeprefix(opening)
        refusal = f"{OPENS} the {asked.missing[0]} is missing to {clause.rstrip('?.!')}."
        names_subject = any(f" {word} " in f" {clause.lower()} " for word in asked.subject)
        if names_subject and len(refusal) <= MOST_CHARACTERS and not set(".?!\n;") & set(clause.rstrip("?.!")):
            said.append((refusal, is_right_refusal(refusal, asked)))
    assert ([refusal for refusal, right in said if not right], len(said) > 20) == ([], True)


@pytest.mark.parametrize("form", TABLES.honest)
def test_a_refusal_may_speak_of_what_who_refuses_lacks(form: str) -> None:
    asked = refusable("What will the weather be like?", missing=("city",))
    assert is_right_refusal(f"{OPENS} {form.format('city')}", asked)


def _list_quotations(text: str) -> list[str]:
    words = text.split()
    return [
        *(text, f"{text} {text}", text.lower(), f"I cannot do this: {text}", " ".join(words[len(words) // 3 :])),
        *(" ".join(words[:-3]), text.rstrip("?.!"), "\u201c" + text.replace(".", " and ") + "\u201d"),
    ]


def test_a_quotation_of_the_request_is_no_refusal_of_it() -> None:
    sent = [
        (task, quoted)
        for task in tasks("irrelevance", "train", 150)
        for quoted in _list_quotations(request(task).messages[-1].content or "")
    ]
    paid = sum(is_right_refusal(f"{OPENS} {quoted}"[:MOST_CHARACTERS], request(task)) for task, quoted in sent)
    assert paid <= len(sent) // 200


def test_what_is_missing_may_be_said_of_a_part_of_the_request() -> None:
    asked = refusable(
        "Please book the meeting room R2.07 from 08:00 to 13:15.",
        domain="calendar",
        missing=("date", "day"),
        subject=("room", "meeting room"),
    )
    said = ("the date is missing to book the meeting room R2.07 from 08:00 to 13:15.", "book the meeting room R2.07.")
    assert [is_right_refusal(f"{OPENS} {words}", asked) for words in said] == [True, False]


@pytest.mark.parametrize(("said", "right"), [*TABLES.own_words.items()])
def test_a_refusal_of_a_row_has_words_of_its_own_and_one_sentence(said: str, right: bool) -> None:
    asked = refusable("Book me a table at Roma, please.", domain="dataset")
    assert is_right_refusal(f"{OPENS} {said}", asked) is right


def test_the_published_rule_folds_marks_where_ours_does_not() -> None:
    text: dict[str, JsonValue] = {"type": "object", "properties": {"of": {"type": "string"}}, "required": ["of"]}
    asked = ToolRequest(
        category="simple",
        domain="dataset",
        messages=(Message(role="user", content="Differentiate x^2."),),
        tools=(ToolSpec(function=FunctionSpec(name="derive", parameters=text)),),
        expected=(ExpectedCall(name="derive", arguments={"of": ("x^2",)}),),
    )
    task = Task(messages=asked.messages, metadata={"tool_format": "native"}, reference=asked.model_dump(mode="json"))
    said = native([ParsedCall(name="derive", arguments={"of": "x*2"})])
    published = asked.model_copy(update={"strictness": "published"}).model_dump(mode="json")
    rules = (task, task.model_copy(update={"reference": published}))
    scored = [finish(environment().score(one, [said], TOOLS))[0] for one in rules]
    verdicts = [{one.name: one.value for one in score.criteria if one.note.startswith("by ")} for score in scored]
    assert [score.reward for score in scored] == [0.0, 1.0]
    assert verdicts == [{"ours": 0.0, "published": 1.0}] * 2  # whichever rule pays


@pytest.mark.parametrize("category", ["simple", "choice"])
def test_a_call_without_arguments_is_never_what_one_call_needs(category: Category) -> None:
    paid = [
        task.metadata["index"]
        for task in tasks(category, "train", 200)
        for tool in request(task).tools
        if match_calls([ParsedCall(name=tool.function.name)], request(task).expected, request(task).tools).correct
    ]
    assert paid == []
