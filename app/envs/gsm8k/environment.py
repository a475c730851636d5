"""Grade-school mathematics: solve a word problem and commit to one number.

    prompt   system: Solve the problem. … finish with a line of the form `#### <answer>` …
             user:   Luca bakes 12 trays of buns, with 16 on every tray. By noon 10 of them have been sold. …
    reply    <think>12 * 16 is 192</think> 192 buns less 10 leave 182; in boxes of 7 that makes 26 boxes.
             #### 26
    reward   1.0     "read 26 from the #### line; correct"

Also paid: `\\boxed{26}`, `the answer is 26`, `#### 52/2`. Not paid: `#### 26 or 27`, `\\boxed{26} \\boxed{27}`, a
reply that says 26 without committing to it, an answer inside the thinking. `app.toolkit.answers.number_extraction`
has the whole rule; values are compared exactly, without `eval`.

With data sets configured, their rows are the tasks. Otherwise the tasks are generated `arithmetic_word` problems,
which are not GSM8K; their metadata says so. Four of five are composed: a beginning, one to four changes, a question,
and sentences with numbers that do not matter; of 5,000 some 4,000 differ when names and numbers are masked. No text
shows its answer as a number.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Annotated, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator

from app.domain.digests import digest_of_model
from app.domain.scores import Score
from app.domain.sources import Dataset
from app.domain.tasks import Completion, Message, Task
from app.domain.values import Split
from app.envs.gsm8k.word_problems import TEST_SIZE, WordProblems
from app.ports import Datasets, Tools
from app.toolkit.answers.committed import map_completions
from app.toolkit.answers.number_extraction import grade_number, read_number
from app.toolkit.dataset_tasks import DatasetEnvironment

STORIES = Path(__file__).with_name("stories.yaml")
CHAINS = Path(__file__).with_name("chains.yaml")
GENERATED = "arithmetic_word"

INSTRUCTION = (
    "Solve the problem. Reason step by step, then finish with a line of the form `#### <answer>`, "
    "where <answer> is a single number and nothing else."
)


class Gsm8kRow(BaseModel):
    """One row of GSM8K: a solution in prose whose last line is `#### <gold>`."""

    model_config = ConfigDict(frozen=True)

    question: Annotated[str, Field(min_length=1)]
    answer: str

    @field_validator("answer")
    @classmethod
    def _check_answer(cls, answer: str) -> str:
        if read_number(answer).value is None:
            raise ValueError("the solution does not end in `#### <number>`")
        return answer


class Gsm8k(DatasetEnvironment[Gsm8kRow]):
    name: ClassVar[str] = "gsm8k"
    version: ClassVar[str] = "2"
    scores_at_once: ClassVar[bool] = True
    chance: ClassVar[float] = 0.01
    row_forms: ClassVar[tuple[type[BaseModel], ...]] = (Gsm8kRow,)
    hub_subset: ClassVar[str | None] = "main"

    def __init__(self, problems: WordProblems, datasets: Mapping[str, Dataset[Gsm8kRow]] | None = None) -> None:
        super().__init__(datasets)
        self._problems = problems

    @classmethod
    def open(cls, datasets: Datasets) -> Self:
        return cls(WordProblems.read(STORIES, CHAINS), cls.read_datasets(datasets))

    @property
    def own_origin(self) -> str:
        return f"generated ({GENERATED})"

    @property
    def own_digests(self) -> Mapping[str, str]:
        return {"stories": digest_of_model(self._problems.book)}

    def count_own_tasks(self, split: Split, params: BaseModel) -> int | None:
        return TEST_SIZE if split == "test" else None

    def build_own_task(self, split: Split, index: int, params: BaseModel) -> Task:
        problem = self._problems.problem(split, index)
        task = _build_task(problem.question, problem.solution)
        return task.model_copy(update={"metadata": {"source": GENERATED, "split": split, "index": index}})

    def build_row_task(self, row: Gsm8kRow, dataset: Dataset[Gsm8kRow], params: BaseModel) -> Task:
        return _build_task(row.question, row.answer)

    async def score(self, task: Task, group: Sequence[Completion], tools: Tools) -> list[Score]:
        gold = _parse_gold(task)
        return await map_completions(group, lambda completion: grade_number(completion.answer, gold))

    def gold(self, task: Task) -> Completion:
        row = self.find_row(task)
        if row is not None:
            return Completion(text=row.answer)
        split: Split = "test" if task.metadata["split"] == "test" else "train"
        return Completion(text=self._problems.problem(split, int(str(task.metadata["index"]))).solution)

    def equivalent(self, one: Task, other: Task) -> bool:
        return _parse_gold(one) == _parse_gold(other)


def _build_task(question: str, solution: str) -> Task:
    return Task(
        messages=(Message(role="system", content=INSTRUCTION), Message(role="user", content=question)),
        reference=str(read_number(solution).value),
    )


def _parse_gold(task: Task) -> Fraction:
    return Fraction(str(task.reference))
