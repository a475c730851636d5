"""What replies to a task earn, without judges and with workers that are no processes."""

from pydantic import BaseModel, JsonValue

from app.domain.scores import Score
from app.domain.tasks import DEFAULT_LIMITS, Completion, Limits, Task
from app.ports.environment import Environment, Tools, Workers
from app.sandbox.workers import InProcessWorkers
from app.service.judging import NoPanel
from tests.support.event_loop import finish


def score_texts(environment: Environment, task: Task, *texts: str, workers: Workers | None = None) -> list[Score]:
    tools = Tools(panel=NoPanel(), workers=workers or InProcessWorkers())
    return finish(environment.score(task, [Completion(text=text) for text in texts], tools))


def pose(made: BaseModel) -> Task:
    """A task of which nothing matters but the reference."""
    return Task(messages=(), reference=made.model_dump(mode="json"))


def explain(environment: Environment, made: BaseModel, answer: str) -> str:
    """The rationale for an answer in tags; `correct` is paid and nothing else."""
    (score,) = score_texts(environment, pose(made), f"<answer>{answer}</answer>")
    assert score.reward == (1.0 if score.rationale == "correct" else 0.0)
    return score.rationale


class FailingWorkers:
    """Workers that fail in one way, whatever they are asked."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def run(self, function: object, *arguments: JsonValue, limits: Limits = DEFAULT_LIMITS) -> JsonValue:
        raise self._error
