"""Requests for tool calls, the built-in APIs that they are generated from, and the right refusal.

A request contains every value exactly as it has to be passed, so that only one call is right. Where no tool fits, or
the request lacks a required argument, no call is right: the reply says in one short sentence what is missing and what
for. Listing everything that could be missing does not count.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Final, Literal, Self, TypeVar

from pydantic import AfterValidator, Field, JsonValue, model_validator

from app.domain.tasks import FunctionSpec, Message, ToolSpec
from app.domain.values import MEBIBYTE, FiniteJson, Frozen, Split, remember
from app.toolkit.seeded import SeededRandom, is_held_out
from app.toolkit.templates import read_yaml
from app.toolkit.tool_calls.calls import ExpectedCall, ParsedCall, Strictness, match_calls
from app.toolkit.tool_calls.formats import NO_PROSE

# The built-in APIs.

_SLOT = re.compile(r"\{(\w+)\}")
_PART = re.compile(r"\[([^\[\]]+)\]")
"""An optional part of a text, with the arguments that it names."""

_ToolName = Annotated[str, Field(pattern=r"^[a-zA-Z_][a-zA-Z0-9_]{1,60}$")]
"""Servers with OpenAI's API accept only these characters, and dashes."""


class WordedValue(Frozen):
    """A value and the words for it, if they differ from the value."""

    value: FiniteJson
    said: str


_Choice = Annotated[WordedValue | FiniteJson, Field(union_mode="left_to_right")]


class ApiArgument(Frozen):
    """One argument of a tool. Its values come from `values`, a named pool, or a range of numbers."""

    schema_: Annotated[dict[str, FiniteJson], Field(alias="schema")]
    values: tuple[_Choice, ...] = ()
    pool: str | None = None
    range: Annotated[tuple[float, ...], Field(min_length=2, max_length=3)] | None = None
    """Lowest, highest, and optionally the step (default 1)."""
    listed: Annotated[tuple[int, int], Field(min_length=2)] | None = None
    """The argument is a list: least and most number of different values."""
    optional: bool = False
    """The argument may be left out. So may one with a `default` in its schema."""
    missing: tuple[str, ...] = ()
    """Words that may name its absence."""

    @model_validator(mode="after")
    def _check_values(self) -> Self:
        if sum((bool(self.values), self.pool is not None, self.range is not None)) != 1:
            raise ValueError("an argument needs exactly one of values, pool and range")
        return self


class IncompleteRequest(Frozen):
    """A request that lacks a required argument."""

    text: str
    lacks: str


class ApiTool(Frozen):
    name: _ToolName
    description: Annotated[str, Field(min_length=10)]
    about: Annotated[tuple[str, ...], Field(min_length=1)]
    """Lower-case words; any of them says that a tool like this one is missing."""
    arguments: dict[str, ApiArgument] = {}
    asks: Annotated[tuple[str, ...], Field(min_length=2)]
    """Sentences with every required argument as `{name}`; parts such as `[ for {days} days]` are optional."""
    incomplete: tuple[IncompleteRequest, ...] = ()
    confusable: tuple[_ToolName, ...] = ()
    """Other tools that could be mistaken for this one."""

    @model_validator(mode="after")
    def _check_asks(self) -> Self:
        for text in self.asks:
            if not {*self.required} <= {*_SLOT.findall(_PART.sub("", text))}:
                raise ValueError(f"{self.name}: {text!r} does not name every required argument")
            self._check_slots(text)
        for one in self.incomplete:
            self._check_slots(one.text)
            if one.lacks not in self.required or one.lacks in _SLOT.findall(one.text):
                raise ValueError(f"{self.name}: {one.text!r} must leave out the required argument {one.lacks}")
            if not self.arguments[one.lacks].missing:
                raise ValueError(f"{self.name}.{one.lacks} needs `missing`: words that name its absence")
        return self

    def _check_slots(self, text: str) -> None:
        unknown = set(_SLOT.findall(text)) - self.arguments.keys()
        if unknown:
            raise ValueError(f"{self.name}: {text!r} names {min(unknown)}, which is not an argument")

    @property
    def required(self) -> tuple[str, ...]:
        """Arguments that every call has."""
        return tuple(
            name
            for name, argument in self.arguments.items()
            if not argument.optional and "default" not in argument.schema_
        )

    @property
    def subject(self) -> tuple[str, ...]:
        """Words for what the tool does: what its `about` and its name say."""
        return tuple(dict.fromkeys((*self.about, *(word for word in self.name.split("_")[1:] if len(word) > 3))))

    @property
    def naming_words(self) -> tuple[str, ...]:
        """All words that name the tool or its arguments."""
        return *self.about, *(word for argument in self.arguments.values() for word in argument.missing)

    @cached_property
    def spec(self) -> ToolSpec:
        properties: dict[str, JsonValue] = {name: argument.schema_ for name, argument in self.arguments.items()}
        parameters: dict[str, JsonValue] = {
            "type": "object",
            "properties": properties,
            "required": [*self.required],
            "additionalProperties": False,
        }
        return ToolSpec(function=FunctionSpec(name=self.name, description=self.description, parameters=parameters))


class ApiDomain(Frozen):
    domain: Annotated[str, Field(pattern=r"^[a-z_]+$")]
    pools: dict[str, Annotated[tuple[_Choice, ...], Field(min_length=4)]] = {}
    tools: Annotated[tuple[ApiTool, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _check_pools(self) -> Self:
        for tool in self.tools:
            for name, argument in tool.arguments.items():
                if argument.pool is not None and argument.pool not in self.pools:
                    raise ValueError(f"{tool.name}.{name}: unknown pool {argument.pool}")
        return self


def _check_tool_names(domains: tuple[ApiDomain, ...]) -> tuple[ApiDomain, ...]:
    names = [tool.name for domain in domains for tool in domain.tools]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise ValueError(f"two tools have the name {min(twice)}")
    unknown = {one for domain in domains for tool in domain.tools for one in tool.confusable} - {*names}
    if unknown:
        raise ValueError(f"`confusable` names the unknown tool {min(unknown)}")
    return domains


class ApiBook(Frozen):
    """All domains, in the order of their names."""

    domains: Annotated[tuple[ApiDomain, ...], Field(min_length=1), AfterValidator(_check_tool_names)]

    @classmethod
    def read(cls, folder: Path) -> Self:
        """From one YAML file per domain; pydantic.ValidationError where one is not a domain."""
        files = sorted(folder.glob("*.yaml"))
        return cls.model_validate({"domains": [read_yaml(file) for file in files]})

    def list_tools(self) -> Iterator[tuple[ApiDomain, ApiTool]]:
        return ((domain, tool) for domain in self.domains for tool in domain.tools)


# Requests, from whatever source.

Category = Literal["simple", "choice", "parallel", "several", "irrelevance"]
"""One tool and one call; one call and several tools; several calls of one tool; calls of several tools; no call."""


class ToolRequest(Frozen):
    category: Category
    domain: str
    messages: Annotated[tuple[Message, ...], Field(min_length=1)]
    """The conversation, which ends with the user's request."""
    tools: tuple[ToolSpec, ...]
    expected: tuple[ExpectedCall, ...] = ()
    """Empty if no tool fits."""
    missing: tuple[str, ...] = ()
    """If no tool fits: words that name what is missing, of which one is enough; empty if any words will do."""
    subject: tuple[str, ...] = ()
    """Words for what the missing thing is needed for, of which a refusal has one too; empty if none is asked for."""
    excluded: tuple[str, ...] = ()
    """Words for things that are not missing: a reply may contain only few of them."""
    strictness: Strictness = "ours"
    """By which rule texts are compared."""


# Sentences that ask for a call, with drawn values.

_PART_SHARE = 60
"""Percent of optional parts that are included."""


@dataclass(frozen=True, slots=True)
class CallRequest:
    """A sentence and the one call that it asks for."""

    text: str
    tool: ApiTool
    arguments: Mapping[str, JsonValue]

    @property
    def expected(self) -> ExpectedCall:
        return ExpectedCall(name=self.tool.name, arguments={name: (value,) for name, value in self.arguments.items()})


def draw_call_request(domain: ApiDomain, tool: ApiTool, draws: SeededRandom) -> CallRequest:
    """A request for one call. Arguments that the sentence does not mention are not in the call."""
    return _write_request(domain, tool, draws.one(tool.asks), draws)


def draw_incomplete_request(domain: ApiDomain, tool: ApiTool, draws: SeededRandom) -> tuple[str, str]:
    """A request that cannot be met, and the required argument that it lacks. The tool must have such requests."""
    incomplete = draws.one(tool.incomplete)
    return _write_request(domain, tool, incomplete.text, draws).text, incomplete.lacks


def _write_request(domain: ApiDomain, tool: ApiTool, template: str, draws: SeededRandom) -> CallRequest:
    text = _PART.sub(lambda part: part[1] if draws.chance(_PART_SHARE) else "", template)
    values = {
        name: _draw_value(tool.arguments[name], domain, draws) for name in tool.arguments if name in _SLOT.findall(text)
    }
    return CallRequest(
        text=_SLOT.sub(lambda slot: values[slot[1]].said, text),
        tool=tool,
        arguments={name: value.value for name, value in values.items()},
    )


def _draw_value(argument: ApiArgument, domain: ApiDomain, draws: SeededRandom) -> WordedValue:
    if argument.range is not None:
        return _draw_in_range(argument.range, draws)
    choices = domain.pools[argument.pool] if argument.pool is not None else argument.values
    if argument.listed is None:
        return _to_worded_value(draws.one(choices))
    least, most = argument.listed
    chosen = [_to_worded_value(one) for one in draws.some(choices, least + draws.below(most - least + 1))]
    return WordedValue(value=[one.value for one in chosen], said=_join_words([one.said for one in chosen]))


def _to_worded_value(choice: WordedValue | JsonValue) -> WordedValue:
    return choice if isinstance(choice, WordedValue) else WordedValue(value=choice, said=str(choice))


def _draw_in_range(bounds: Sequence[float], draws: SeededRandom) -> WordedValue:
    """Computed in hundredths, so that text and value agree exactly."""
    low, high, step = (round(bound * 100) for bound in (*bounds, 1)[:3])
    hundredths = low + step * draws.below((high - low) // step + 1)
    number = hundredths // 100 if all(float(bound).is_integer() for bound in bounds) else hundredths / 100
    return WordedValue(value=number, said=str(number))


def _join_words(words: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


# Refusals.

OPENS: Final = "No tool fits:"
MOST_CHARACTERS: Final = 160
"""Most characters of a refusal: listing everything that could be missing does not count."""
_MOST_BESIDE: Final = 1
"""Most words for other things in a refusal: a list of guesses has more."""

INSTRUCTION: Final = (
    "You can call tools. Make exactly the calls that the request needs, with the values that it gives, and leave out "
    "what it does not give. If none of the tools fits the request, or the request lacks something that a call needs, "
    f"make no call: reply with `{OPENS}` followed by one short sentence that says what is missing and what for, and "
    "nothing else."
)

_OPENING: Final = re.compile(r"[\s*_#>`\"'“‘]*no\s+tool\s+fits[*_`\"'”’]*\s*[:.;,!–—-][\s*_`\"'”’]*", re.IGNORECASE)
"""The opening in any case and markup, with another sign than the colon as well."""
_WORD: Final = re.compile(r"\w+")


_SENTENCE_END: Final = re.compile(r"[.!?…。]['\"”’)*_`]{0,4}\s|[\r\n;]")
"""Where a second sentence may begin, which takes back what the first one says."""
_SHORT: Final = re.compile(r"\b(?:e\.g|i\.e|etc|vs|approx|no|nr|st|mr|mrs|ms|dr|[a-z])\.$", re.IGNORECASE)
"""Abbreviations, whose full stop ends nothing."""
_SHORT_OR_LAST: Final = re.compile(r"\b(?:etc|no)\.$", re.IGNORECASE)
"""Those that end a sentence as well: a word with a capital letter begins another one, a number as R2 does not."""
_CAPITAL: Final = re.compile(r"\W*[^\W\d_a-z](?!\d)")
_TAKEN_BACK: Final = re.compile(
    r"\b(?:any ?way|nevertheless|nonetheless|regardless|all the same"
    r"|(?:all|everything|it) (?:is|are) (?:here|there|given|known|available|present)"
    r"|(?:is|are|was)(?: not|n['’]t) (?:missing|needed|necessary|lacking)"
    r"|nothing (?:is|was)? ?(?:missing|lacking)"
    r"|(?:that|this|which) is (?:wrong|false|untrue|not (?:true|so|right)))\b",
    re.IGNORECASE,
)
"""What no refusal says: that nothing is missing."""
_SPEAKERS: Final = re.compile(
    r"\b(?:(?P<condition>tools?(?: that| which)?|before|until|unless|once|if|whether)"
    r"|(?P<dependent>that|whom?|where|when|(?:which|what|whose|how)(?: \w+){0,2}))?"
    r" ?\b(?:i|we) (?!e )"
)
"""In plain words: `I` and `we`, with what makes a clause a condition or a dependent one, but not `i.e.`."""
_LACKS: Final = re.compile(
    r"(?:(?:ll|d|ve|will|would|do|did|have|had|can|could|may|might|must|should|am|m|are|re|was|were|been|to|like|want"
    r"|still|also|only|just|first|currently|then|see|found|find|given|told) ){0,4}"
    r"(?:need|lack|miss|missing|lacking|require|know|ask|not|cannot|(?:can|\w{2,8}n) t|no|none|nothing|neither"
    r"|without)\b"
    r"|(?:have|ve)(?: got)?(?: an?| the| only| just| some| other| several){0,2} tools?\b"
    r"|(?:can only|only have|have only)\b(?! \w+ed\b)"
    r"|(?:am|m|are|re|was|were) (?:an?|sorry|afraid|unable|limited|restricted|asked)\b"
    r"|(?:see|understand|think|believe)\b"
)
"""What who refuses says of himself: whatever else he does is no refusal."""
_INTENDS: Final = re.compile(r"(?:can|could|should|shall|must|may|might|would|am|are|was|were|want|have to|had to)\b")
_ANYTHING_BUT_PAST: Final = re.compile(r"(?!\w+ed\b)")
_LEAST_QUOTED: Final = 4
"""Words in a row that a refusal and the request share, from which on they are a quotation."""


def write_refusal(request: ToolRequest) -> str:
    """A right refusal for a request that expects no call."""
    purpose = f", for {request.subject[0]}" if request.subject else ""
    return f"{OPENS} what is missing is {request.missing[0] if request.missing else 'a tool for this'}{purpose}."


def is_right_refusal(reply: str, request: ToolRequest) -> bool:
    """Whether a reply begins as asked, is one short sentence that takes nothing back and tells of no deed, contains one
    of the request's words (any word if it has none), one for its subject if it has any, and few words that name
    something else. What it quotes from the request names nothing that is missing: the request names much that it does
    not lack."""
    opening = _OPENING.match(reply)
    if opening is None or len(reply) > MOST_CHARACTERS:
        return False
    said = reply[opening.end() :]
    if not _is_one_sentence(said) or _TAKEN_BACK.search(said) or NO_PROSE.search(said.replace("(s)", "s")):
        return False
    words = _drop_quotations(said, request)
    if _says_a_deed(words):
        return False
    if not request.missing:
        return words != "  "
    if not _has_any_name(words, request.missing) or (
        request.subject and not _has_any_name(_pad_words(said), request.subject)
    ):
        return False
    beside = [name for name in map(_normalise_name, request.excluded) if name in words]
    return sum(not any(name != other and name in other for other in beside) for name in beside) <= _MOST_BESIDE


def _is_one_sentence(said: str) -> bool:
    text = said.strip()
    return not any(
        text[end.end() :].strip() and not _is_short(text[: end.start() + 1], text[end.end() :])
        for end in _SENTENCE_END.finditer(text)
    )


def _is_short(before: str, behind: str) -> bool:
    """Whether a full stop is that of an abbreviation."""
    if _SHORT.search(before) is None:
        return False
    return _SHORT_OR_LAST.search(before) is None or _CAPITAL.match(behind) is None


def _says_a_deed(words: str) -> bool:
    """Whether `I` or `we` do something, and not only lack what is missing."""
    for speaker in _SPEAKERS.finditer(words):
        known = _ANYTHING_BUT_PAST if speaker["condition"] else _INTENDS if speaker["dependent"] else _LACKS
        if known.match(words, speaker.end()) is None and _LACKS.match(words, speaker.end()) is None:
            return True
    return False


def _drop_quotations(said: str, request: ToolRequest) -> str:
    """The padded words of a refusal without those that stand so in the request."""
    asked = [_pad_words(message.content or "") for message in request.messages if message.role == "user"]
    words = _WORD.findall(said.casefold())
    kept: list[str] = []
    place = 0
    while place < len(words):
        length = max((_count_quoted(words[place:], text) for text in asked), default=0)
        quoted = length >= _LEAST_QUOTED or 0 < length == len(words)
        kept += [] if quoted else [words[place]]
        place += length if quoted else 1
    return f" {' '.join(kept)} "


def _count_quoted(words: Sequence[str], text: str) -> int:
    """How many of the first words stand in this order in a padded text."""
    count = 0
    while count < len(words) and f" {' '.join(words[: count + 1])} " in text:
        count += 1
    return count


def _list_absent_names(names: Sequence[str], texts: Sequence[str]) -> tuple[str, ...]:
    """Those of `names` that none of these texts contains."""
    words = "\n".join(map(_pad_words, texts))
    return tuple(name for name in dict.fromkeys(names) if not _has_any_name(words, [name]))


def _has_any_name(words: str, names: Sequence[str]) -> bool:
    return any(_normalise_name(name) in words for name in names)


@remember(MEBIBYTE)
def _normalise_name(name: str) -> str:
    return _pad_words(name)


def _pad_words(text: str) -> str:
    """The words of the text with one space around each."""
    return f" {' '.join(_WORD.findall(text.casefold()))} "


# Generated requests: endless for training, a fixed separate set for testing.

TEST_SIZE: Final = 1_000
TEST_SHARE: Final = 10
"""One in so many sentences is held out for testing."""

_MOST_DRAWS: Final = 200
"""Far more attempts than a sentence of the right split needs."""

_ROUND: Final[tuple[Category, ...]] = (
    *("simple", "choice", "irrelevance", "parallel", "several"),
    *("choice", "irrelevance", "parallel", "several", "choice"),
    *("simple", "choice", "irrelevance", "parallel", "several"),
    *("choice", "irrelevance", "parallel", "several", "simple"),
)
"""Categories by index, repeated: a fifth of the tasks expects no call."""

_JOINERS: Final[tuple[Callable[[Sequence[str]], str], ...]] = (
    " ".join,
    lambda texts: "\n".join(f"- {text}" for text in texts),
    lambda texts: "\n".join(f"{number}. {text}" for number, text in enumerate(texts, 1)),
    lambda texts: " And another thing: ".join([" ".join(texts[:-1]), texts[-1]]),
)


_OPENERS: Final = (
    *("", "", "", "Hi! ", "Hello. ", "One thing, please. ", "Could you take care of this for me? ", "OK, next. "),
    *("I need some help. ", "Quick one. ", "Good morning! ", "Thanks in advance. "),
)

_Member = tuple[ApiDomain, ApiTool]
TextT = TypeVar("TextT")


class GeneratedRequests:
    """Request `index` of a split is a pure function of the book, the index and the categories asked for."""

    def __init__(self, book: ApiBook) -> None:
        self.book = book
        self._tools: tuple[_Member, ...] = tuple(book.list_tools())
        self._named = tuple(dict.fromkeys(word for _, tool in self._tools for word in tool.naming_words))
        self._with_arguments = [one for one in self._tools if one[1].required]
        self._incomplete = [one for one in self._tools if one[1].incomplete]

    def get_request(self, split: Split, index: int, categories: Sequence[Category] = ()) -> ToolRequest:
        """`index` is any non-negative integer for train and below TEST_SIZE for test. `categories` selects categories.
        ValueError if the APIs do not suffice."""
        category = choose_category(index, categories)
        for attempt in range(_MOST_DRAWS):
            draws = SeededRandom(f"{split} {index} {category} {attempt}")
            made = (
                self._draw_irrelevant_request(split, draws)
                if category == "irrelevance"
                else self._draw_request(category, split, draws)
            )
            if made is not None:
                return made
        raise ValueError(f"the APIs do not suffice for tasks of category {category}")

    def _draw_request(self, category: Category, split: Split, draws: SeededRandom) -> ToolRequest | None:
        members = self._draw_members(category, draws)
        if category == "several" and len(members) == 1:
            return None
        requests: list[CallRequest] = []
        for domain, tool in members:
            one = _draw_distinct_request(domain, tool, requests, split, draws)
            if one is None or (category in ("simple", "choice") and not _needs_arguments(one)):
                return None
            requests.append(one)
        offered = list({tool.name: (domain, tool) for domain, tool in members}.values())
        decoys = {"simple": 0, "choice": 3 + draws.below(4)}.get(category, draws.below(4))
        offered += self._draw_decoys(offered, decoys, draws)
        return ToolRequest(
            category=category,
            domain=members[0][0].domain,
            messages=(_build_user_message([one.text for one in requests], draws),),
            tools=tuple(tool.spec for _, tool in draws.shuffled(offered)),
            expected=tuple(one.expected for one in requests),
        )

    def _draw_members(self, category: Category, draws: SeededRandom) -> list[_Member]:
        if category == "parallel":
            return [draws.one(self._with_arguments)] * (2 + draws.below(3))
        members = [draws.one(self._tools)]
        for _ in range(1 + draws.below(2) if category == "several" else 0):
            members += draws.some(self._list_distinguishable(members), 1)
        return members

    def _draw_irrelevant_request(self, split: Split, draws: SeededRandom) -> ToolRequest | None:
        """Half of the time the request lacks an argument, otherwise the tool is missing."""
        lacking = draws.chance(50)
        domain, tool = member = draws.one(self._incomplete if lacking else self._tools)
        if lacking:
            incomplete = _find_fitting(
                lambda: draw_incomplete_request(domain, tool, draws),
                lambda drawn: is_held_out(drawn[0], TEST_SHARE) == (split == "test"),
            )
            text, lacks = incomplete if incomplete is not None else ("", "")
            missing = tool.arguments[lacks].missing if lacks else ()
        else:
            one = _draw_distinct_request(domain, tool, (), split, draws)
            text, missing = (one.text, tool.about) if one is not None else ("", ())
        if not text:
            return None
        decoys = self._draw_decoys([member], draws.below(4) + (not lacking), draws)
        offered = [member, *decoys] if lacking else decoys
        return ToolRequest(
            category="irrelevance",
            domain=domain.domain,
            messages=(_build_user_message([text], draws),),
            tools=tuple(one.spec for _, one in draws.shuffled(offered)),
            missing=missing,
            subject=tool.subject if lacking else (),
            excluded=_list_absent_names(self._named, (*missing, *tool.about, text)),
        )

    def _draw_decoys(self, members: Sequence[_Member], count: int, draws: SeededRandom) -> list[_Member]:
        """Additional tools, about half of them from the domain of the first of these."""
        apart = self._list_distinguishable(members)
        near = draws.some([one for one in apart if one[0] is members[0][0]], (count + 1) // 2)
        return near + draws.some([one for one in apart if one not in near], count - len(near))

    def _list_distinguishable(self, members: Sequence[_Member]) -> list[_Member]:
        return [one for one in self._tools if all(_can_be_told_apart(one[1], tool) for _, tool in members)]


def choose_category(index: int, categories: Sequence[Category] = ()) -> Category:
    """The category of the request at an index, in either split."""
    asked = [category for category in _ROUND if not categories or category in categories]
    return asked[index % len(asked)]


def _can_be_told_apart(one: ApiTool, other: ApiTool) -> bool:
    return one.name != other.name and one.name not in other.confusable and other.name not in one.confusable


def _draw_distinct_request(
    domain: ApiDomain, tool: ApiTool, others: Sequence[CallRequest], split: Split, draws: SeededRandom
) -> CallRequest | None:
    """A request for one call that belongs to the split and asks for none of the other calls."""
    return _find_fitting(lambda: draw_call_request(domain, tool, draws), lambda one: _is_usable(one, others, split))


def _is_usable(one: CallRequest, others: Sequence[CallRequest], split: Split) -> bool:
    return is_held_out(one.text, TEST_SHARE) == (split == "test") and one.expected not in [
        other.expected for other in others
    ]


def _needs_arguments(one: CallRequest) -> bool:
    """Whether a call without arguments is another one: a policy that always makes such calls must not be paid."""
    empty = ParsedCall(name=one.tool.name)
    return not match_calls([empty], [one.expected], [one.tool.spec]).correct


def _find_fitting(make: Callable[[], TextT], fits: Callable[[TextT], bool]) -> TextT | None:
    """The first result that fits; None after too many attempts."""
    return next((one for one in (make() for _ in range(_MOST_DRAWS)) if fits(one)), None)


def _build_user_message(texts: Sequence[str], draws: SeededRandom) -> Message:
    joined = texts[0] if len(texts) == 1 else draws.one(_JOINERS)(texts)
    return Message(role="user", content=(draws.one(_OPENERS) if not joined.startswith(("-", "1")) else "") + joined)
