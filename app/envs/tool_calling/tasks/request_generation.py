"""Requests generated from the built-in APIs: endless for training, a fixed separate set for testing."""

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from app.domain.tasks import Message
from app.domain.values import Split
from app.envs.tool_calling.tasks.apis import ApiBook, ApiDomain, ApiTool
from app.envs.tool_calling.tasks.refusal_replies import list_absent_names
from app.envs.tool_calling.tasks.request_wording import CallRequest, draw_call_request, draw_incomplete_request
from app.envs.tool_calling.tasks.tool_requests import Category, ToolRequest
from app.toolkit.seeded import SeededRandom, is_held_out
from app.toolkit.tool_calls.calls import ParsedCall
from app.toolkit.tool_calls.matching import match_calls

TEST_SIZE: Final = 1_000
TEST_SHARE: Final = 10
"""One in so many sentences is held out for testing."""

MOST_DRAWS: Final = 200
"""Far more attempts than a sentence of the right split needs."""

ROUND: Final[tuple[Category, ...]] = (
    *(
        "simple",
        "choice",
        "irrelevance",
        "parallel",
        "several",
        "choice",
        "irrelevance",
        "parallel",
        "several",
        "choice",
    ),
    *(
        "simple",
        "choice",
        "irrelevance",
        "parallel",
        "several",
        "choice",
        "irrelevance",
        "parallel",
        "several",
        "simple",
    ),
)
"""Categories by index, repeated: a fifth of the tasks expects no call."""

JOINERS: Final[tuple[Callable[[Sequence[str]], str], ...]] = (
    " ".join,
    lambda texts: "\n".join(f"- {text}" for text in texts),
    lambda texts: "\n".join(f"{number}. {text}" for number, text in enumerate(texts, 1)),
    lambda texts: " And another thing: ".join([" ".join(texts[:-1]), texts[-1]]),
)


OPENERS: Final = (
    *("", "", "", "Hi! ", "Hello. ", "One thing, please. ", "Could you take care of this for me? ", "OK, next. "),
    *("I need some help. ", "Quick one. ", "Good morning! ", "Thanks in advance. "),
)

Member = tuple[ApiDomain, ApiTool]
TextT = TypeVar("TextT")


class GeneratedRequests:
    """Request `index` of a split is a pure function of the book, the index and the categories asked for."""

    def __init__(self, book: ApiBook) -> None:
        self.book = book
        self._tools: tuple[Member, ...] = tuple(book.list_tools())
        self._named = tuple(dict.fromkeys(word for _, tool in self._tools for word in tool.naming_words))
        self._with_arguments = [one for one in self._tools if one[1].required]
        self._incomplete = [one for one in self._tools if one[1].incomplete]

    def get_request(self, split: Split, index: int, categories: Sequence[Category] = ()) -> ToolRequest:
        """`index` is any non-negative integer for train and below TEST_SIZE for test. `categories` selects categories.
        ValueError if the APIs do not suffice."""
        category = choose_category(index, categories)
        for attempt in range(MOST_DRAWS):
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
        wanted: list[CallRequest] = []
        for domain, tool in members:
            one = _draw_distinct_request(domain, tool, wanted, split, draws)
            if one is None or (category in ("simple", "choice") and not _needs_arguments(one)):
                return None
            wanted.append(one)
        offered = list({tool.name: (domain, tool) for domain, tool in members}.values())
        decoys = {"simple": 0, "choice": 3 + draws.below(4)}.get(category, draws.below(4))
        offered += self._draw_decoys(offered, decoys, draws)
        return ToolRequest(
            category=category,
            domain=members[0][0].domain,
            messages=(_build_user_message([one.text for one in wanted], draws),),
            tools=tuple(tool.spec for _, tool in draws.shuffled(offered)),
            expected=tuple(one.expected for one in wanted),
        )

    def _draw_members(self, category: Category, draws: SeededRandom) -> list[Member]:
        if category == "parallel":
            return [draws.one(self._with_arguments)] * (2 + draws.below(3))
        members = [draws.one(self._tools)]
        for _ in range(1 + draws.below(2) if category == "several" else 0):
            members += draws.some(self._list_distinguishable(members), 1)
        return members

    def _draw_irrelevant_request(self, split: Split, draws: SeededRandom) -> ToolRequest | None:
        """Half of the time the request lacks an argument, otherwise the tool is missing."""
        lacking = draws.chance(50)
        domain, tool = wanted = draws.one(self._incomplete if lacking else self._tools)
        if lacking:
            said = _find_fitting(
                lambda: draw_incomplete_request(domain, tool, draws),
                lambda said: is_held_out(said[0], TEST_SHARE) == (split == "test"),
            )
            text, lacks = said if said is not None else ("", "")
            missing = tool.arguments[lacks].missing if lacks else ()
        else:
            one = _draw_distinct_request(domain, tool, (), split, draws)
            text, missing = (one.text, tool.about) if one is not None else ("", ())
        if not text:
            return None
        decoys = self._draw_decoys([wanted], draws.below(4) + (not lacking), draws)
        offered = [wanted, *decoys] if lacking else decoys
        return ToolRequest(
            category="irrelevance",
            domain=domain.domain,
            messages=(_build_user_message([text], draws),),
            tools=tuple(one.spec for _, one in draws.shuffled(offered)),
            missing=missing,
            subject=tool.subject if lacking else (),
            excluded=list_absent_names(self._named, (*missing, *tool.about, text)),
        )

    def _draw_decoys(self, wanted: Sequence[Member], count: int, draws: SeededRandom) -> list[Member]:
        """Additional tools, about half of them from the domain of the first wanted one."""
        apart = self._list_distinguishable(wanted)
        near = draws.some([one for one in apart if one[0] is wanted[0][0]], (count + 1) // 2)
        return near + draws.some([one for one in apart if one not in near], count - len(near))

    def _list_distinguishable(self, wanted: Sequence[Member]) -> list[Member]:
        return [one for one in self._tools if all(_can_be_told_apart(one[1], tool) for _, tool in wanted)]


def choose_category(index: int, categories: Sequence[Category] = ()) -> Category:
    """The category of the request at an index, in either split."""
    asked = [category for category in ROUND if not categories or category in categories]
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
    return next((one for one in (make() for _ in range(MOST_DRAWS)) if fits(one)), None)


def _build_user_message(texts: Sequence[str], draws: SeededRandom) -> Message:
    joined = texts[0] if len(texts) == 1 else draws.one(JOINERS)(texts)
    return Message(role="user", content=(draws.one(OPENERS) if not joined.startswith(("-", "1")) else "") + joined)
