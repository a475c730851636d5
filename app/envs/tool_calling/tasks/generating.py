"""Requests generated from the built-in APIs: endless for training, a fixed separate set for testing."""

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from app.domain.tasks import Message
from app.domain.values import Split
from app.envs.tool_calling.tasks.apis import ApiBook, Domain, Tool
from app.envs.tool_calling.tasks.refusals import elsewhere
from app.envs.tool_calling.tasks.requests import Category, ToolRequest
from app.envs.tool_calling.tasks.wording import Asked, asked, asked_without
from app.toolkit.seeded import Draws, held_out

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

JOINED: Final[tuple[Callable[[Sequence[str]], str], ...]] = (
    " ".join,
    lambda texts: "\n".join(f"- {text}" for text in texts),
    lambda texts: "\n".join(f"{number}. {text}" for number, text in enumerate(texts, 1)),
    lambda texts: " And another thing: ".join([" ".join(texts[:-1]), texts[-1]]),
)


OPENERS: Final = (
    *("", "", "", "Hi! ", "Hello. ", "One thing, please. ", "Could you take care of this for me? ", "OK, next. "),
    *("I need some help. ", "Quick one. ", "Good morning! ", "Thanks in advance. "),
)

Member = tuple[Domain, Tool]
TextT = TypeVar("TextT")


class GeneratedRequests:
    """Request `index` of a split is a pure function of the book, the index and the categories asked for."""

    def __init__(self, book: ApiBook) -> None:
        self.book = book
        self._tools: tuple[Member, ...] = tuple(book.tools())
        self._named = tuple(dict.fromkeys(word for _, tool in self._tools for word in tool.named))
        self._with_arguments = [one for one in self._tools if one[1].required]
        self._incomplete = [one for one in self._tools if one[1].incomplete]

    def request(self, split: Split, index: int, categories: Sequence[Category] = ()) -> ToolRequest:
        """`index` is any non-negative integer for train and below TEST_SIZE for test. `categories` selects categories.
        ValueError if the APIs do not suffice."""
        category = category_of(index, categories)
        for attempt in range(MOST_DRAWS):
            draws = Draws(f"{split} {index} {category} {attempt}")
            made = self._irrelevant(split, draws) if category == "irrelevance" else self._made(category, split, draws)
            if made is not None:
                return made
        raise ValueError(f"the APIs do not suffice for tasks of category {category}")

    def _made(self, category: Category, split: Split, draws: Draws) -> ToolRequest | None:
        members = self._members(category, draws)
        if category == "several" and len(members) == 1:
            return None
        wanted: list[Asked] = []
        for domain, tool in members:
            one = _asked_apart(domain, tool, wanted, split, draws)
            if one is None:
                return None
            wanted.append(one)
        offered = list({tool.name: (domain, tool) for domain, tool in members}.values())
        decoys = {"simple": 0, "choice": 3 + draws.below(4)}.get(category, draws.below(4))
        offered += self._decoys(offered, decoys, draws)
        return ToolRequest(
            category=category,
            domain=members[0][0].domain,
            messages=(_user([one.text for one in wanted], draws),),
            tools=tuple(tool.spec for _, tool in draws.shuffled(offered)),
            expected=tuple(one.expected for one in wanted),
        )

    def _members(self, category: Category, draws: Draws) -> list[Member]:
        if category == "parallel":
            return [draws.one(self._with_arguments)] * (2 + draws.below(3))
        members = [draws.one(self._tools)]
        for _ in range(1 + draws.below(2) if category == "several" else 0):
            members += draws.some(self._apart(members), 1)
        return members

    def _irrelevant(self, split: Split, draws: Draws) -> ToolRequest | None:
        """Half of the time the request lacks an argument, otherwise the tool is missing."""
        lacking = draws.chance(50)
        domain, tool = wanted = draws.one(self._incomplete if lacking else self._tools)
        if lacking:
            said = _met(
                lambda: asked_without(domain, tool, draws),
                lambda said: held_out(said[0], TEST_SHARE) == (split == "test"),
            )
            text, lacks = said if said is not None else ("", "")
            missing = tool.arguments[lacks].missing if lacks else ()
        else:
            one = _asked_apart(domain, tool, (), split, draws)
            text, missing = (one.text, tool.about) if one is not None else ("", ())
        if not text:
            return None
        decoys = self._decoys([wanted], draws.below(4) + (not lacking), draws)
        offered = [wanted, *decoys] if lacking else decoys
        return ToolRequest(
            category="irrelevance",
            domain=domain.domain,
            messages=(_user([text], draws),),
            tools=tuple(one.spec for _, one in draws.shuffled(offered)),
            missing=missing,
            excluded=elsewhere(self._named, (*missing, *tool.about, text)),
        )

    def _decoys(self, wanted: Sequence[Member], count: int, draws: Draws) -> list[Member]:
        """Additional tools, about half of them from the domain of the first wanted one."""
        apart = self._apart(wanted)
        near = draws.some([one for one in apart if one[0] is wanted[0][0]], (count + 1) // 2)
        return near + draws.some([one for one in apart if one not in near], count - len(near))

    def _apart(self, wanted: Sequence[Member]) -> list[Member]:
        return [one for one in self._tools if all(_can_be_told_apart(one[1], tool) for _, tool in wanted)]


def category_of(index: int, categories: Sequence[Category] = ()) -> Category:
    """The category of the request at an index, in either split."""
    asked = [category for category in ROUND if not categories or category in categories]
    return asked[index % len(asked)]


def _can_be_told_apart(one: Tool, other: Tool) -> bool:
    return one.name != other.name and one.name not in other.confusable and other.name not in one.confusable


def _asked_apart(domain: Domain, tool: Tool, others: Sequence[Asked], split: Split, draws: Draws) -> Asked | None:
    """A request for one call that belongs to the split and asks for none of the other calls."""
    return _met(lambda: asked(domain, tool, draws), lambda one: _fits(one, others, split))


def _fits(one: Asked, others: Sequence[Asked], split: Split) -> bool:
    return held_out(one.text, TEST_SHARE) == (split == "test") and one.expected not in [
        other.expected for other in others
    ]


def _met(make: Callable[[], TextT], fits: Callable[[TextT], bool]) -> TextT | None:
    """The first result that fits; None after too many attempts."""
    return next((one for one in (make() for _ in range(MOST_DRAWS)) if fits(one)), None)


def _user(texts: Sequence[str], draws: Draws) -> Message:
    joined = texts[0] if len(texts) == 1 else draws.one(JOINED)(texts)
    return Message(role="user", content=(draws.one(OPENERS) if not joined.startswith(("-", "1")) else "") + joined)
