"""Pairs: a context, a question about two answers, and which of the two is better.

Generated pairs are made so that nothing but the context tells which answer is right: for another context of the same
words, drawn equally often, the other answer would be. Decoys around an answer (assurances, layout, orders to the judge)
are drawn in the same way for both. Pairs of data sets are what people or models preferred, taken as it is.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, model_validator

from app.domain.tasks import Dataset, leave_out
from app.domain.values import Frozen, Split, digest, digest_of_model
from app.toolkit.procedural import Level
from app.toolkit.seeded import SeededRandom
from app.toolkit.templates import read_packaged_data

# fmt: off
Kind = Literal[
    "grounded", "character", "attribution", "certainty", "tool_call",
    "evasion", "arithmetic", "code", "policy", "instructions",
]
# fmt: on


class AnswerPair(Frozen):
    """Right and wrong are interchangeable: for another equally likely `context` of the same words, the other answer
    would be better. So nothing in the answers alone, such as length or style, tells which one is right."""

    kind: Kind
    context: str
    asks: str
    right: str
    wrong: str


class _Pools(Frozen):
    lists: dict[str, tuple[str, ...]]
    ranges: dict[str, tuple[int, int]]


_FOLDER: Final = Path(__file__).parent
_POOLS: Final = read_packaged_data(_FOLDER / "pools.yaml", TypeAdapter(_Pools))


def _draw_two(draws: SeededRandom, pool: str) -> tuple[str, str]:
    """Two different values in random order."""
    if pool in _POOLS.ranges:
        low, high = _POOLS.ranges[pool]
        first = draws.below(high - low)
        second = draws.below(high - low - 1)
        return str(low + first), str(low + second + (second >= first))
    first_text, second_text = draws.some(_POOLS.lists[pool], 2)
    return first_text, second_text


def _get_words(pool: str) -> tuple[str, ...]:
    return _POOLS.lists[pool]


# Computed pairs: sums, rules, programs.

_SLIPS: Final = (-20, -10, -8, -6, -4, -2, 2, 4, 6, 8, 10, 20)
"""Only even ones: right products are mostly even, so an odd slip would often give the wrong result away."""

_STEPS: Final[Mapping[Level, int]] = {"first": 1, "easy": 1, "medium": 2, "hard": 3}


class _WorkingStep(Frozen):
    number: int
    more: bool


def _draw_arithmetic_pair(draws: SeededRandom, level: Level) -> AnswerPair:
    """The wrong answer adds instead of subtracting, swaps two numbers, or slips. Hard ones may slip twice, so that the
    result is right again."""
    name, thing = draws.one(_get_words("person")), draws.one(_get_words("thing"))
    boxes, each = 12 + draws.below(30), 16 + draws.below(30)
    steps = [_WorkingStep(number=int(one), more=draws.chance(50)) for one in _draw_different(draws, _STEPS[level] + 1)]
    where = draws.below(len(steps) - 1)
    right = _write_working(draws, boxes, each, steps)
    fault = draws.one(("slip", "turned", "swapped") if level != "hard" else ("slip", "turned", "swapped", "luck"))
    if fault == "slip":
        wrong = _write_working(draws, boxes, each, steps, {draws.below(len(steps) + 1): draws.one(_SLIPS)})
    elif fault == "luck":
        slip = draws.one(_SLIPS)
        wrong = _write_working(draws, boxes, each, steps, {where: slip, where + 1: -slip})
    elif fault == "turned":
        turned = steps[where].model_copy(update={"more": not steps[where].more})
        wrong = _write_working(draws, boxes, each, [*steps[:where], turned, *steps[where + 1 :]])
    else:
        one, other = steps[where], steps[where + 1]
        steps[where + 1] = other.model_copy(update={"more": not one.more})
        right = _write_working(draws, boxes, each, steps)
        swapped = [_WorkingStep(number=other.number, more=one.more), _WorkingStep(number=one.number, more=not one.more)]
        wrong = _write_working(draws, boxes, each, [*steps[:where], *swapped, *steps[where + 2 :]])
    told = [f"Then {step.number} are {'brought' if step.more else 'taken away'}." for step in steps]
    return AnswerPair(
        kind="arithmetic",
        context=f"{name} stores {thing} in {boxes} boxes of {each} pieces. {' '.join(told)} How many pieces are there?",
        asks="Which answer is right in every step of its working and in its result?",
        right=right,
        wrong=wrong,
    )


def _draw_different(draws: SeededRandom, count: int) -> Sequence[int]:
    """Small enough that the count never becomes negative."""
    return [12 + number for number in draws.some(range(34), count)]


def _write_working(
    draws: SeededRandom, boxes: int, each: int, steps: Sequence[_WorkingStep], slips: Mapping[int, int] | None = None
) -> str:
    """`slips`: error by step; step 0 is the product."""
    off = slips or {}
    value = boxes * each + off.get(0, 0)
    lines = [f"{boxes} × {each} = {value}."]
    for number, step in enumerate(steps, start=1):
        after = value + (step.number if step.more else -step.number) + off.get(number, 0)
        lines.append(f"{value} {'+' if step.more else '−'} {step.number} = {after}.")
        value = after
    return " ".join([*lines, draws.one((f"So there are {value}.", f"The result is {value}.", f"That makes {value}."))])


class _PolicyCondition(Frozen):
    name: str
    rule: str
    case: str
    at_most: bool = True


class _Policies(Frozen):
    conditions: tuple[_PolicyCondition, ...]
    granted: tuple[str, ...]
    declined: tuple[str, ...]
    naming_condition: tuple[str, ...]


_POLICIES: Final = read_packaged_data(_FOLDER / "policies.yaml", TypeAdapter(_Policies))


def _draw_policy_pair(draws: SeededRandom, level: Level) -> AnswerPair:
    """Whether a case meets all conditions; hard: which condition it does not meet."""
    conditions = draws.some(_POLICIES.conditions, _STEPS[level] + 1)
    failing, other = draws.some(range(len(conditions)), 2)
    named = level == "hard"
    granted = not named and draws.chance(50)
    rules, case = [], []
    for index, condition in enumerate(conditions):
        low, high = sorted(int(one) for one in _draw_two(draws, "count"))
        broken = index == failing and not granted
        limit, actual = (low, high) if broken == condition.at_most else (high, low)
        rules.append("- " + condition.rule.format(limit=limit))
        case.append(condition.case.format(actual=actual))
    yes, no = draws.one(_POLICIES.granted), draws.one(_POLICIES.declined)
    right, wrong = (yes, no) if granted else (no, yes)
    if named:
        right, wrong = (
            draws.one(_POLICIES.naming_condition).format(condition=conditions[index].name) for index in (failing, other)
        )
    return AnswerPair(
        kind="policy",
        context="\n".join(
            ["A shop takes goods back when all of this is so:", *rules, f"A customer: {' '.join(draws.shuffled(case))}"]
        ),
        asks="Which answer goes by the rules?",
        right=right,
        wrong=wrong,
    )


class _ShownProgram(Frozen):
    source: str
    printed: str


def _draw_code_pair(draws: SeededRandom, level: Level) -> AnswerPair:
    """Two programs that differ slightly, one of them shown; each answer is the output of one of them."""
    write = draws.one(_PROGRAMS)
    while True:  # some numbers give both programs the same output
        shown, near = draws.shuffled(write(draws, _STEPS[level]))
        if shown.printed != near.printed:
            break
    says = ("It prints {}.", "The program prints {}.", "What comes out is {}.")
    return AnswerPair(
        kind="code",
        context=f"```python\n{shown.source}\n```",
        asks=draws.one(("Which answer says what this program prints?", "Which answer has the output right?")),
        right=draws.one(says).format(shown.printed),
        wrong=draws.one(says).format(near.printed),
    )


def _write_range_sums(draws: SeededRandom, steps: int) -> Sequence[_ShownProgram]:
    low, divisor = 1 + draws.below(9), 2 + draws.below(3)
    high = low + divisor * (2 + steps + draws.below(3))
    return [
        _ShownProgram(
            source=f"total = 0\nfor n in range({low}, {written}):\n    if n % {divisor} == {low % divisor}:\n"
            "        total += n\nprint(total)",
            printed=str(sum(n for n in range(low, end) if n % divisor == low % divisor)),
        )
        for written, end in ((f"{high}", high), (f"{high} + 1", high + 1))
    ]


def _write_slices(draws: SeededRandom, steps: int) -> Sequence[_ShownProgram]:
    words = draws.some(_get_words("thing"), 4 + steps)
    first = draws.below(2)
    last = first + 2 + draws.below(steps + 1)
    return [
        _ShownProgram(source=f'words = {words}\nprint("-".join({written}))', printed="-".join(some))
        for written, some in (
            (f"words[{first}:{last}]", words[first:last]),
            (f"words[{first + 1}:{last + 1}]", words[first + 1 : last + 1]),
        )
    ]


def _write_doublings(draws: SeededRandom, steps: int) -> Sequence[_ShownProgram]:
    """The bound is reached exactly, so `<` and `<=` give different results."""
    start, added = 2 + draws.below(7), draws.below(4)
    bound = start
    for _ in range(steps + 1):
        bound = 2 * bound + added
    return [
        _ShownProgram(
            source=f"x = {start}\nwhile x {sign} {bound}:\n    x = x * 2 + {added}\nprint(x)",
            printed=str(end),
        )
        for sign, end in (("<", bound), ("<=", 2 * bound + added))
    ]


def _write_counts(draws: SeededRandom, steps: int) -> Sequence[_ShownProgram]:
    one, other = draws.some(_get_words("animal"), 2)
    words = draws.shuffled([one] * (1 + draws.below(3 + steps)) + [other] * (1 + draws.below(3 + steps)))
    return [
        _ShownProgram(
            source=f"counts = {{}}\nfor word in {words}:\n    counts[word] = counts.get(word, 0) + 1\n"
            f'print(counts["{word}"])',
            printed=str(words.count(word)),
        )
        for word in (one, other)
    ]


def _write_sortings(draws: SeededRandom, steps: int) -> Sequence[_ShownProgram]:
    numbers = draws.some(range(10, 99), 4 + steps)
    return [
        _ShownProgram(
            source=f"numbers = {numbers}\nprint(sorted(numbers)[{index}])", printed=str(sorted(numbers)[index])
        )
        for index in (steps, steps - len(numbers) + 1)
    ]


_PROGRAMS: Final[Sequence[Callable[[SeededRandom, int], Sequence[_ShownProgram]]]] = (
    _write_range_sums,
    _write_slices,
    _write_doublings,
    _write_counts,
    _write_sortings,
)


# Pairs about instructions: two notices, one of which breaks a rule that the other one follows. Every rule has two
# sides, and either may be asked for: five or six sentences, a question at the end or none.


class _NoticeMaterial(Frozen):
    greetings: tuple[str, ...]
    fillers: tuple[str, ...]
    questions: tuple[str, ...]
    statements: tuple[str, ...]
    hours: dict[str, str]


_MATERIAL: Final = read_packaged_data(Path(__file__).with_name("notices.yaml"), TypeAdapter(_NoticeMaterial))
_RULES: Final[Mapping[Level, int]] = {"first": 1, "easy": 2, "medium": 4, "hard": 6}

_Side = bool
_RuleWriter = Callable[["_NoticeTopic", _Side], str]


class _NoticeTopic(Frozen):
    """The topic of both notices, and the wordings of the two sides of each rule."""

    place: str
    greetings: tuple[str, str]
    things: tuple[str, str]
    signatures: tuple[str, str]
    sentences: int


_RULE_TEXTS: Final[Mapping[str, _RuleWriter]] = {
    "greeting": lambda about, side: (
        f"It begins with “{about.greetings[side]}”, not with “{about.greetings[not side]}”."
    ),
    "length": lambda about, side: (
        f"Between the greeting and the signature it has exactly {about.sentences + side} sentences."
    ),
    "hour": lambda about, side: f"The hour is written in {'digits' if side else 'letters'}.",
    "end": lambda about, side: f"The last sentence before the signature is {'a' if side else 'no'} question.",
    "order": lambda about, side: f"It names {about.things[side]} before {about.things[not side]}.",
    "place": lambda about, side: (
        f"The name of the place is written {'in capitals throughout' if side else 'with one capital only'}."
    ),
    "signature": lambda about, side: f"It is signed “{about.signatures[side]}”, not “{about.signatures[not side]}”.",
}


def _draw_instruction_pair(draws: SeededRandom, level: Level) -> AnswerPair:
    about = _draw_notice_parts(draws)
    asked = {name: draws.chance(50) for name in draws.some([*_RULE_TEXTS], _RULES[level])}
    broken = draws.one([*asked])
    rules = [f"- {_RULE_TEXTS[name](about, side)}" for name, side in asked.items()]
    right, wrong = (_write_notice(draws, about, sides) for sides in (asked, {**asked, broken: not asked[broken]}))
    return AnswerPair(
        kind="instructions",
        context="\n".join([f"Asked for was a notice about a gathering in {about.place}, with these rules:", *rules]),
        asks="Which answer has the notice that follows every rule? The notice is what stands between the two lines.",
        right=f"---\n{right}\n---",
        wrong=f"---\n{wrong}\n---",
    )


def _draw_notice_parts(draws: SeededRandom) -> _NoticeTopic:
    first, second = draws.some(_MATERIAL.greetings, 2)
    return _NoticeTopic(
        place=_draw_two(draws, "place")[0],
        greetings=(first, second),
        things=_draw_two(draws, "thing"),
        signatures=_draw_two(draws, "person"),
        sentences=3 + draws.below(4),
    )


def _write_notice(draws: SeededRandom, about: _NoticeTopic, sides: Mapping[str, _Side]) -> str:
    """Everything that no rule mentions is random."""
    side = {name: sides.get(name, draws.chance(50)) for name in _RULE_TEXTS}
    digits, letters = draws.one([*_MATERIAL.hours.items()])
    hour, town = digits if side["hour"] else letters, about.place.upper() if side["place"] else about.place
    one, other = about.things if not side["order"] else about.things[::-1]
    last = draws.one(_MATERIAL.questions if side["end"] else _MATERIAL.statements)
    count = about.sentences + side["length"]
    middle: Sequence[str] = draws.shuffled(
        [f"There will be {one} and {other}.", *draws.some(_MATERIAL.fillers, count - 3)]
    )
    sentences = [f"We meet in {town} at {hour}.", *middle, last]
    return f"{about.greetings[side['greeting']]},\n{' '.join(sentences)}\n{about.signatures[side['signature']]}"


# Pairs about given texts: passages, character sheets, conversations, requests. Each fact of a scene has two values, one
# for the subject and one for something else: the mill was built in 1890, the bridge in 1902. One answer has all values
# right, the other one uses the wrong one of the two for one fact.


class _FactTemplate(Frozen):
    pool: str
    topic: str = ""
    """What a person who wants to know the value asks for."""
    tells: tuple[str, ...]
    """`{a}` is the subject's value, `{b}` the other one. Either comes first equally often."""
    claims: tuple[str, ...]


class _SceneTemplate(Frozen):
    kind: Kind
    asks: tuple[str, ...]
    opening: str
    between: str = " "
    frame: str = "{claims}"
    joint: str = " "
    whole: bool = False
    """Whether an answer has to mention every fact."""
    names: dict[str, str] = {}
    """Pools of names by slot."""
    facts: tuple[_FactTemplate, ...]


SCENES: Final = read_packaged_data(Path(__file__).with_name("scenes.yaml"), TypeAdapter(tuple[_SceneTemplate, ...]))
_FACTS: Final[Mapping[Level, int]] = {"first": 2, "easy": 2, "medium": 3, "hard": 5}
_CLAIMS: Final[Mapping[Level, int]] = {"first": 1, "easy": 1, "medium": 2, "hard": 4}
_SILENCE: Final = ("it is hard to say", "little can be said", "opinions differ", "one would have to look it up")


class _DrawnFact(Frozen):
    template: _FactTemplate
    names: dict[str, str]
    a: str
    b: str

    def tell(self, draws: SeededRandom) -> str:
        values = {**self.names, "a": _get_told_form(self.a), "b": _get_told_form(self.b)}
        return draws.one(self.template.tells).format_map(values)

    def claim(self, draws: SeededRandom, *, wrong: bool = False) -> str:
        value = _get_claimed_form(self.b if wrong else self.a)
        return draws.one(self.template.claims).format_map({**self.names, "v": value})


def _draw_scene_pair(draws: SeededRandom, kind: Kind, level: Level) -> AnswerPair:
    scene, names, facts = _draw_scene(draws, kind, level)
    claimed = facts if scene.whole else draws.some(facts, _CLAIMS[level])
    mistaken = draws.one(claimed)
    answers = [
        scene.frame.replace(
            "{claims}",
            scene.joint.join(fact.claim(draws, wrong=wrong and fact is mistaken) for fact in draws.shuffled(claimed)),
        )
        for wrong in (False, True)
    ]
    asks = draws.one(scene.asks).format_map(names)
    return AnswerPair(
        kind=kind, context=_write_context(draws, scene, names, facts), asks=asks, right=answers[0], wrong=answers[1]
    )


def _draw_evasion_pair(draws: SeededRandom, level: Level) -> AnswerPair:
    """Both answers state a fact about one topic and evade another; the question asked about one of the two."""
    scene, names, facts = _draw_scene(draws, "grounded", level)
    asked, other = draws.some(facts, 2)
    right, wrong = _write_evasion(draws, asked, other), _write_evasion(draws, other, asked)
    wishes = f"Somebody wants to know {asked.template.topic}.", f"They do not ask {other.template.topic}."
    return AnswerPair(
        kind="evasion",
        context=f"{_write_context(draws, scene, names, facts)}\n{' '.join(wishes)}",
        asks=draws.one(
            ("Which answer tells them what they want to know?", "Which answer does not evade the question?")
        ),
        right=right,
        wrong=wrong,
    )


def _write_evasion(draws: SeededRandom, stated: _DrawnFact, evaded: _DrawnFact) -> str:
    parts = [
        f"If you ask {stated.template.topic}: {stated.claim(draws)}",
        f"If you ask {evaded.template.topic}: {draws.one(_SILENCE)}.",
    ]
    return " ".join(draws.shuffled(parts))


def _draw_scene(
    draws: SeededRandom, kind: Kind, level: Level
) -> tuple[_SceneTemplate, dict[str, str], Sequence[_DrawnFact]]:
    scene = draws.one([scene for scene in SCENES if scene.kind == kind])
    names = dict(zip(scene.names, draws.some(_get_words("person"), len(scene.names)), strict=True))
    facts = []
    for template in draws.some(scene.facts, _FACTS[level]):
        # a value may be a person: nobody who is in the scene already
        while {*(pair := _draw_two(draws, template.pool))} & {*names.values()}:
            pass
        facts.append(_DrawnFact(template=template, names=names, a=pair[0], b=pair[1]))
    return scene, names, facts


def _write_context(
    draws: SeededRandom, scene: _SceneTemplate, names: Mapping[str, str], facts: Sequence[_DrawnFact]
) -> str:
    facts_text = scene.between.join(fact.tell(draws) for fact in draws.shuffled(facts))
    return f"{scene.opening.format_map(names)}\n{facts_text}"


def _get_told_form(value: str) -> str:
    return value.split("|")[0]


def _get_claimed_form(value: str) -> str:
    return value.split("|")[-1]


# Questions: a pair of any kind, with decoys around its answers.

_Verdict = Literal["A", "B"]


class _Decoys(Frozen):
    before: tuple[str, ...]
    after: tuple[str, ...]
    orders: tuple[str, ...]
    """Orders to the judge."""


class PairQuestion(Frozen):
    kind: str
    """A Kind, or a subset of a data set."""
    context: str
    asks: str
    answers: tuple[str, str]
    verdict: _Verdict
    matter: str
    """The pair without its decoys: equal for equal questions."""


_DECOYS: Final = read_packaged_data(Path(__file__).with_name("decoys.yaml"), TypeAdapter(_Decoys))
DIGESTS: Final[Mapping[str, str]] = {
    "pools": digest_of_model(_POOLS),
    "scenes": digest([scene.model_dump(mode="json") for scene in SCENES]),
    "notices": digest_of_model(_MATERIAL),
    "decoys": digest_of_model(_DECOYS),
}
_DECOY_SHARES: Final[Mapping[Level, tuple[int, int]]] = {
    "first": (0, 0),
    "easy": (20, 5),
    "medium": (45, 15),
    "hard": (65, 30),
}
"""Percent of answers with words before or after them, and with an order to the judge."""

KINDS: Final[Mapping[Kind, Callable[[SeededRandom, Level], AnswerPair]]] = {
    "grounded": lambda draws, level: _draw_scene_pair(draws, "grounded", level),
    "character": lambda draws, level: _draw_scene_pair(draws, "character", level),
    "attribution": lambda draws, level: _draw_scene_pair(draws, "attribution", level),
    "certainty": lambda draws, level: _draw_scene_pair(draws, "certainty", level),
    "tool_call": lambda draws, level: _draw_scene_pair(draws, "tool_call", level),
    "evasion": _draw_evasion_pair,
    "arithmetic": _draw_arithmetic_pair,
    "code": _draw_code_pair,
    "policy": _draw_policy_pair,
    "instructions": _draw_instruction_pair,
}


def draw_question(draws: SeededRandom, kind: Kind, level: Level) -> PairQuestion:
    pair = KINDS[kind](draws, level)
    right, wrong = _add_decoys(draws, pair.right, level), _add_decoys(draws, pair.wrong, level)
    verdict: _Verdict = draws.one(("A", "B"))
    return PairQuestion(
        kind=kind,
        context=pair.context,
        asks=pair.asks,
        answers=(right, wrong) if verdict == "A" else (wrong, right),
        verdict=verdict,
        matter="\n".join([pair.context, *sorted((pair.right, pair.wrong))]),
    )


def _add_decoys(draws: SeededRandom, answer: str, level: Level) -> str:
    """Adds decoys to each answer independently, so that they say nothing about which one is better."""
    words, orders = _DECOY_SHARES[level]
    parts = [
        *([draws.one(_DECOYS.before)] if draws.chance(words) else []),
        answer,
        *([draws.one(_DECOYS.after)] if draws.chance(words) else []),
    ]
    if draws.chance(orders):
        parts.insert(draws.below(len(parts) + 1), draws.one(_DECOYS.orders))
    return "\n".join(parts)


# Rows of preference data sets.
#
#     PreferenceRow      prompt, chosen, rejected: UltraFeedback-binarized, RewardBench (1 and 2), and data for DPO
#     StrengthRow        prompt, response_1, response_2, preference_strength: the preferences of HelpSteer2 and 3
#     RatedRow           prompt, response, helpfulness: HelpSteer2, where rows of one prompt follow each other
#
# Rows without a preference are left out.

_ASKS = "Which answer is the better reply to the last message?"
_TIES = "Ties"
"""A subset of RewardBench 2 in which several answers are right."""

_Turn = Mapping[str, Any]


class _PublishedRow(BaseModel):
    model_config = ConfigDict(frozen=True)


def _read_answer(value: object) -> object:
    """Of a whole conversation, the last message answers; of a list of texts, the first is taken."""
    if isinstance(value, Sequence) and not isinstance(value, str) and value:
        last = value[-1]
        return last.get("content") if isinstance(last, Mapping) else value[0]
    return value


_Answer = Annotated[str, BeforeValidator(_read_answer)]


class PreferenceRow(_PublishedRow):
    prompt: str | tuple[_Turn, ...] = ""
    chosen: _Answer
    rejected: _Answer
    subset: str = ""
    score_chosen: float | None = None
    score_rejected: float | None = None
    conversation: Annotated[tuple[_Turn, ...], Field(alias="messages")] = ()

    @model_validator(mode="before")
    @classmethod
    def _keep_conversation(cls, row: Any) -> Any:
        """The turns before the last of `chosen` are the conversation, where it is a whole one."""
        chosen = row.get("chosen") if isinstance(row, Mapping) else None
        if isinstance(chosen, Sequence) and chosen and isinstance(chosen[-1], Mapping):
            return {**row, "messages": tuple(chosen[:-1])}
        return {name: value for name, value in row.items() if name != "messages"} if isinstance(row, Mapping) else row

    @model_validator(mode="after")
    def _require_preference(self) -> Self:
        if not self.context:
            raise ValueError("there is no prompt")
        if self.subset == _TIES:
            raise leave_out("several of its answers are right")
        if self.chosen.strip() == self.rejected.strip():
            raise leave_out("both answers are the same")
        if self.score_chosen is not None and self.score_chosen == self.score_rejected:
            raise leave_out("both answers have the same score")
        return self

    @property
    def context(self) -> str:
        return _write_conversation(self.conversation or self.prompt)

    @property
    def question(self) -> PairQuestion:
        return _build_question(self.context, self.chosen, self.rejected, self.subset)


class StrengthRow(_PublishedRow):
    """`preference_strength` is -3 to 3; above 0 the second answer is better."""

    prompt: Annotated[str, Field(min_length=1)]
    response_1: str
    response_2: str
    preference_strength: int

    @model_validator(mode="after")
    def _require_preference(self) -> Self:
        if self.preference_strength == 0 or self.response_1.strip() == self.response_2.strip():
            raise leave_out("neither answer is preferred")
        return self

    @property
    def question(self) -> PairQuestion:
        better, worse = self.response_2, self.response_1
        if self.preference_strength < 0:
            better, worse = worse, better
        return _build_question(_write_conversation(self.prompt), better, worse, "")


class RatedRow(_PublishedRow):
    """One answer with its rating; the next row may have another answer to the same prompt."""

    prompt: Annotated[str, Field(min_length=1)]
    response: str
    helpfulness: float

    def compare(self, other: "RatedRow") -> PairQuestion | None:
        """None for another prompt, for equal ratings and for equal answers."""
        same = self.prompt == other.prompt and self.response.strip() != other.response.strip()
        if not same or self.helpfulness == other.helpfulness:
            return None
        better, worse = (self, other) if self.helpfulness > other.helpfulness else (other, self)
        return _build_question(_write_conversation(self.prompt), better.response, worse.response, "")


PairRow = PreferenceRow | StrengthRow | RatedRow


class RowPairs:
    """The pairs of a data set, by split."""

    def __init__(self, dataset: Dataset[PairRow]) -> None:
        """Reads every row where two of them make a pair."""
        self._rows = dataset.splits
        self._indexes = {split: _find_pairs(rows) for split, rows in dataset.splits.items()}

    def count_pairs(self, split: Split) -> int:
        return len(self._indexes.get(split, ()))

    def get_question(self, split: Split, position: int) -> PairQuestion:
        rows, index = self._rows[split], self._indexes[split][position]
        row = rows[index]
        if not isinstance(row, RatedRow):
            return row.question
        question = row.compare(_as_rated(rows[index + 1]))
        if question is None:
            raise ValueError("these rows were a pair when they were read")
        return question


def _find_pairs(rows: Sequence[PairRow]) -> Sequence[int]:
    """Indexes of rows, of two that are compared that of the first. No row is in two pairs."""
    if not rows or not isinstance(rows[0], RatedRow):
        return range(len(rows))
    indexes: list[int] = []
    for index in range(len(rows) - 1):
        taken = bool(indexes) and indexes[-1] == index - 1
        if not taken and _as_rated(rows[index]).compare(_as_rated(rows[index + 1])) is not None:
            indexes.append(index)
    return indexes


def _as_rated(row: PairRow) -> RatedRow:
    if not isinstance(row, RatedRow):
        raise TypeError("a data set has rows of one form")
    return row


def _build_question(context: str, better: str, worse: str, kind: str) -> PairQuestion:
    """Which answer is A is left to the text of the pair."""
    matter = digest([context, better, worse])
    verdict: _Verdict = SeededRandom(matter).one(("A", "B"))
    answers = (better, worse) if verdict == "A" else (worse, better)
    return PairQuestion(
        kind=kind or "preference", context=context, asks=_ASKS, answers=answers, verdict=verdict, matter=matter
    )


def _write_conversation(turns: str | Sequence[_Turn]) -> str:
    if isinstance(turns, str):
        return turns.strip()
    if len(turns) == 1:
        return str(turns[0].get("content") or "").strip()
    return "\n\n".join(f"{turn.get('role', 'user')}: {turn.get('content') or ''}" for turn in turns).strip()
