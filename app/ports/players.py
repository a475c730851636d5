"""Players that models play. An environment says what a player is asked and which lines it may say; the service asks a
model, and stores every line before anybody sees it."""

from collections.abc import Collection, Sequence
from typing import Protocol

from app.domain.judging import Judgement, JudgeReport
from app.domain.players import PlayedLine, PlayerChoice, PlayerLine, StoredLines
from app.domain.tasks import Message


class Player(Protocol):
    """The player of one task. Pure. `heard` are the policy's replies as the player hears them, `said` the player's
    answers to all of them but the last."""

    @property
    def choice(self) -> PlayerChoice: ...

    @property
    def most_replies(self) -> int:
        """Of the policy, in the longest episode."""

    def hear(self, message: Message) -> str: ...

    def build_prompt(self, heard: Sequence[str], said: Sequence[str], discarded: str) -> str:
        """`discarded`: what was wrong with the last answer; empty where there was none."""

    def read_answer(self, answer: str, heard: Sequence[str], said: Sequence[str]) -> PlayerLine | str:
        """The line, or what is wrong with it, as the model is told when it is asked again."""


class PlayerModel(Protocol):
    """A configured model that plays players."""

    @property
    def name(self) -> str:
        """In accounts and metrics, beside those of judges."""

    @property
    def model(self) -> str: ...

    @property
    def version(self) -> str:
        """Digest of all settings that change its lines."""

    @property
    def may_be_judge(self) -> bool:
        """Whether it may play in a run that the same model judges."""

    async def ask(self, prompt: str) -> Judgement:
        """An answer in `raw`, paid for and counted. It never raises when the server fails: `error` is set then."""

    def report(self) -> JudgeReport: ...

    async def open(self) -> None: ...

    async def close(self) -> None: ...


class PlayerLineStore(Protocol):
    """Lines by the digest of their task and of all that was said before them."""

    async def find_lines(self, keys: Collection[str]) -> StoredLines: ...

    async def put(self, key: str, task_id: str, played: PlayedLine) -> PlayedLine:
        """The line that is stored there now: the first one, unless that was a passing failure. Durable on return."""
