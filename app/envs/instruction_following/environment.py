"""Instruction following: write a short text that obeys several rules, each checked by code.

    prompt   Write a fairy tale about a kettle in a lighthouse. … at least 40 words … - Write exactly 6 sentences.
             - Do not use any commas.  - The last word of your reply must be "together".
    reply    <think>Six sentences, no commas …</think> Once a kettle lived in a lighthouse. …
    reward   1.0   every rule is kept, and it is a text about what was asked

The whole reply outside the thinking counts: there are no answer tags, and nothing is removed before counting. Not paid:
a text that breaks a rule, is too short, copies the prompt, lists words, invents words, repeats itself or is about
something else. Code does not check whether the text is good.

With data sets configured (IFEval and the like), their rows are the tasks: the same reward, by IFEval's 25 kinds in the
meaning that `strictness` chooses. `level` and `instructions` then have no effect.

A task has one to five rules (`instructions`): `first` one plain kind, `easy` one or two, `medium` two or three, `hard`
three to five with one or two hard ones. `share` is the share of rules that were followed (weight 0), and the rationale
names what was not, with counts. Each kind is worded in two or three ways, and two kinds that decide the same never
stand together. A task is handed out only if the environment has built a text that follows everything (its gold).

**How it counts.** A word stands between white space or dashes and has a letter or a digit. A sentence ends with a word
that ends with `.`, `!` or `?`, or with its line, and has a letter. A paragraph is a run of lines without a blank one;
where parts with `***` or `******` between them are asked for, only those lines separate. Words that must or must not
occur are runs of letters, digits and apostrophes: `river-bed` contains `river`, `rivers` does not. Case and accents
count only where a rule is about case. Full-width signs and typographic quotation marks count as plain ones; zero-width
characters, controls and combining marks are removed first.

**What counts as a text**, whatever was asked:

- it has the least number of words that its prompt names, runs of five words of the prompt not counted, and at most
  20,000 characters;
- it mentions both things;
- its sentences have 3 to 60 words on average, and none of three words or more comes twice;
- two in five of its first 150 words are different;
- between a fifth and four fifths of its words are stop words, which hardly ever clash (`clashes.yaml`);
- three in four of its content words are English (`english_words.txt.gz`; names are not counted), and no letter is of
  another script.

A nonsensical text that keeps the rules and the words earns 1, so put a judged environment beside it in the mixture.
The kinds resemble those of IFEval and IFBench, whose prompts, words and code are not used.
"""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final

from pydantic import BaseModel, Field, JsonValue, SerializerFunctionWrapHandler, TypeAdapter, model_serializer

from app.domain.scores import Criterion, Score
from app.domain.tasks import Completion, Dataset, Message, Task
from app.domain.values import Split, WholeNumber, digest, digest_of_model, digest_of_text
from app.envs.instruction_following.assignments import (
    Assignment,
    add_gold,
    draw_assignment,
    draw_first_assignment,
    find_faults,
)
from app.envs.instruction_following.ifeval_rows import (
    IfevalRow,
    IfevalTask,
    IfevalTrainingRow,
    Strictness,
    find_ifeval_faults,
    write_ifeval_gold,
)
from app.envs.instruction_following.instructions import PARTS, PROSE, WORDINGS, parse_text
from app.envs.instruction_following.texts import CLASHES, ENGLISH_WORDS, FUNCTION_WORDS, find_prose_fault
from app.ports import Tools
from app.ports.environment import FreeReward, RefusedSpelling
from app.toolkit.procedural import LEVELS, DatasetEnvironment, DatasetParams, Level, LevelParams, ProceduralEnvironment
from app.toolkit.seeded import SeededRandom
from app.toolkit.templates import Phrasings, read_packaged_data
from app.toolkit.thoughts import map_completions, strip_thinking

_RULES: Final[Mapping[Strictness, str]] = {"ours": "by our meaning", "published": "as IFEval's code checks"}
_FORMS: Final = read_packaged_data(Path(__file__).with_name("prompts.yaml"), TypeAdapter(tuple[str, ...]))
_NUMBERS: Final[Mapping[Level, tuple[tuple[int, int], ...]]] = {
    "easy": ((1, 0), (2, 0)),
    "medium": ((2, 1), (3, 0), (3, 1)),
    "hard": ((3, 2), (4, 1), (4, 2), (5, 1), (5, 2)),
}
"""Pairs: number of instructions, and how many of them are of a hard kind."""


class InstructionFollowingParams(LevelParams, DatasetParams):
    instructions: Annotated[WholeNumber, Field(ge=1, le=5)] | None = None
    """Number of instructions. Default by level: 1 or 2 (easy), 2 or 3 (medium), 3 to 5 (hard); the level also decides
    how many of them are of a hard kind. `first`: always 1."""
    strictness: Strictness | None = None
    """What instructions of a data set mean: `ours` (the default) or `published`, both of the reply as it is, or
    `loose`: published, of the reply or of what is left without its first line, its last line or its stars."""

    @model_serializer(mode="wrap")
    def _leave_default_out(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        values: dict[str, Any] = serialize(self)
        return {name: one for name, one in values.items() if name not in ("dataset", "strictness") or one is not None}


class InstructionFollowing(
    DatasetEnvironment[IfevalRow | IfevalTrainingRow], ProceduralEnvironment[Assignment, InstructionFollowingParams]
):
    name: ClassVar[str] = "instruction_following"
    version: ClassVar[str] = "3"
    levels: ClassVar[tuple[Level, ...]] = LEVELS
    scores_at_once: ClassVar[bool] = True
    phrasings: ClassVar[Phrasings] = Phrasings(_FORMS)
    data: ClassVar[Mapping[str, str]] = {
        "wordings": digest({kind: list(texts) for kind, texts in WORDINGS.items()}),
        "requests": digest_of_model(PARTS),
        "prose": digest_of_model(PROSE),
        "function_words": digest(sorted(FUNCTION_WORDS)),
        "clashes": digest(sorted(CLASHES)),
        "english_words": digest_of_text(ENGLISH_WORDS.read_bytes().hex()),
    }
    free_rewards: ClassVar[tuple[FreeReward, ...]] = (
        FreeReward(strategy="near_miss_digit", share=None, because="A text is free in the numbers that it mentions."),
        FreeReward(strategy="two_answers", share=None, because="Two texts are one, which may follow all instructions."),
        FreeReward(strategy="denied", share=None, because="What a text says of itself is not asked about."),
        FreeReward(strategy="field_changed", share=None, because="Texts in JSON are free in what they say."),
    )
    refused_spellings: ClassVar[tuple[RefusedSpelling, ...]] = (
        RefusedSpelling(
            kinds=("json",),
            because="The instructions name the members in their order, and ask for JSON and nothing else.",
        ),
    )

    row_forms: ClassVar[tuple[type[BaseModel], ...]] = (IfevalRow, IfevalTrainingRow)

    def build_row_task(
        self,
        row: IfevalRow | IfevalTrainingRow,
        dataset: Dataset[IfevalRow | IfevalTrainingRow],
        params: BaseModel,
    ) -> Task:
        strictness: Strictness = getattr(params, "strictness", None) or "ours"
        asked = IfevalTask(prompt=row.task_text, instructions=row.instructions, strictness=strictness)
        kinds: list[JsonValue] = [instruction.id for instruction in row.instructions]
        return Task(
            messages=(Message(role="user", content=row.task_text),),
            metadata={**({"key": row.name} if row.name else {}), "instructions": kinds, "strictness": strictness},
            reference=asked.model_dump(mode="json", exclude_unset=True),
        )

    def build_own_task(self, split: Split, index: int, params: BaseModel) -> Task:
        return super().build_own_task(split, index, params.model_copy(update={"strictness": None}))

    def make(self, draws: SeededRandom, level: Level, params: InstructionFollowingParams) -> Assignment:
        if level == "first":
            return draw_first_assignment(draws)
        number, hard = draws.one(_NUMBERS[level])
        number = params.instructions or number
        return draw_assignment(draws, number, min(hard, number))

    def draw_content(self, seed: str, split: Split, level: Level, params: InstructionFollowingParams) -> Assignment:
        """Draws again until a text that follows all instructions can be written. The split is decided before that."""
        attempt, assignment = 0, None
        while assignment is None:
            made = super().draw_content(f"{seed} {attempt}", split, level, params)
            assignment = add_gold(made, SeededRandom(f"{seed} {split} {attempt} gold"), _join_prompt_texts(made))
            attempt += 1
        return assignment

    def key(self, made: Assignment) -> str:
        return made.identity

    def slots(self, made: Assignment) -> Mapping[str, str | int]:
        request = made.request
        return {
            "request": request.sentence,
            "thing": request.thing,
            "place": request.place,
            "least": request.least,
            "instructions": "\n".join(f"- {asked}" for asked in made.asked),
        }

    def metadata(self, made: Assignment) -> dict[str, JsonValue]:
        return {"instructions": [instruction.kind for instruction in made.instructions]}

    async def score(self, task: Task, group: Sequence[Completion], tools: Tools) -> list[Score]:
        if _is_of_row(task):
            asked = IfevalTask.model_validate(task.reference)
            return await map_completions(group, lambda one: _score_row_reply(asked, one.answer))
        made = self.parse_reference(task)
        return await map_completions(group, lambda completion: _score_reply(made, completion.answer))

    def solution(self, made: Assignment) -> str:
        return made.gold

    def gold(self, task: Task) -> Completion | None:
        """None for a row where no text of ours follows everything."""
        if not _is_of_row(task):
            return Completion(text=self.solution(self.parse_reference(task)))
        text = write_ifeval_gold(IfevalTask.model_validate(task.reference))
        return Completion(text=text) if text else None

    def equivalent(self, one: Task, other: Task) -> bool:
        if _is_of_row(one) or _is_of_row(other):
            return one.reference == other.reference
        return super().equivalent(one, other)


def _is_of_row(task: Task) -> bool:
    return isinstance(task.reference, Mapping) and "strictness" in task.reference


def _score_row_reply(asked: IfevalTask, answer: str) -> Score:
    reply = strip_thinking(answer)
    if reply.unfinished:
        return _add_verdicts(_score_unfinished(), frozenset())
    found = {rule: find_ifeval_faults(reply.text, asked, rule) for rule in (*_RULES, asked.strictness)}
    lacks, broken = found[asked.strictness]
    share = 0.0 if lacks else broken.count("") / len(broken)
    score = _build_score(share, [fault for fault in (lacks, *broken) if fault])
    return _add_verdicts(score, {rule for rule, (missing, faults) in found.items() if not (missing or any(faults))})


def _add_verdicts(score: Score, right: Collection[str]) -> Score:
    """`right`: the rules that pay. Both verdicts are told, so that figures can be compared with those of others."""
    verdicts = [Criterion(name=rule, value=float(rule in right), weight=0.0, note=_RULES[rule]) for rule in _RULES]
    return score.model_copy(update={"criteria": (*score.criteria, *verdicts)})


def _score_unfinished() -> Score:
    score = _build_score(0.0, ["the thinking never ended"])
    return score.model_copy(update={"flags": ("unfinished_thinking",)})


def _score_reply(made: Assignment, answer: str) -> Score:
    reply = strip_thinking(answer)
    if reply.unfinished:
        return _score_unfinished()
    reading = parse_text(reply.text)
    lacks = find_prose_fault(reading, made.request, _join_prompt_texts(made))
    if lacks:
        return _build_score(0.0, [lacks])
    broken = find_faults(reading, made.instructions)
    return _build_score(broken.count("") / len(broken), [fault for fault in broken if fault])


def _join_prompt_texts(made: Assignment) -> str:
    """Every text that a prompt of this task may contain, whichever phrasing is used."""
    return "\n".join([made.request.sentence, *made.asked, *_FORMS])


def _build_score(share: float, wrong: Sequence[str]) -> Score:
    reward = 0.0 if wrong else 1.0
    return Score(
        outcome="scored",
        reward=reward,
        gate=1.0,
        absolute=reward,
        criteria=(
            Criterion(name="followed", value=reward, weight=1.0, note="all instructions"),
            Criterion(name="share", value=share, weight=0.0, note="of the instructions, where it is a text at all"),
        ),
        rationale="; ".join(wrong) or "all instructions are followed",
    )
