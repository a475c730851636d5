"""Requests to judges and their answers, and the facts that deterministic gates check against."""

from collections.abc import Sequence
from operator import not_
from typing import Annotated, Final, Literal

from pydantic import Field, JsonValue, SkipValidation

from app.domain.calibration import ReferenceKind
from app.domain.keeping import ReducedReading
from app.domain.rubrics import Bound as Bound
from app.domain.rubrics import ClaimRule as ClaimRule
from app.domain.rubrics import DefectRule as DefectRule
from app.domain.rubrics import Requirement as Requirement
from app.domain.rubrics import Rubric as Rubric
from app.domain.rubrics import RubricCriterion as RubricCriterion
from app.domain.scores import Score
from app.domain.tasks import Message
from app.domain.values import FiniteNumber, Frozen, Unit

Document = Annotated[dict[str, JsonValue], SkipValidation]
"""JSON made by the service. Never copied, since it can be large and all judge calls of a group share it."""
Mode = Literal["listwise", "pairwise", "pointwise"]
"""How a panel presents a group to a judge: all at once, in pairs, or one by one."""


def _is_none(value: object) -> bool:
    return value is None


class SourceEvent(Frozen):
    """An event that the speaker knows, as shown to judges. Claims cite it by id."""

    id: str
    text: str


class Candidate(Frozen):
    """One completion under an opaque id. Chat judges see a letter in its place."""

    id: str
    text: str
    own: str = ""
    """If `text` is a transcript of an episode: the lines that the model wrote. Empty means all of it."""
    hints: tuple[str, ...] = ()
    """Possible problems found by word checks, in words. They may be false alarms."""
    messages: tuple[Message, ...] = ()
    """If `text` is a transcript of an episode: the episode itself. Empty means one message with `text`."""


class Probes(Frozen):
    """Reference notes of a task, for judges only: what a reply should and should not contain."""

    must_mention: tuple[str, ...] = ()
    must_not_mention: tuple[str, ...] = ()
    voice: tuple[str, ...] = ()
    """Words and turns of phrase typical of the speaker."""
    facts: tuple[str, ...] = ()
    """True statements that the reply may draw on."""
    notes: str = ""
    """What the player's line is meant to test."""


class JudgeRequest(Frozen):
    """One call to a judge about one group. `candidates` are in presentation order."""

    rubric: Rubric
    document: Document
    """Everything the judge may know besides the candidates: sheet, scene, conversation, passages. Data only."""
    probes: Probes
    candidates: tuple[Candidate, ...]
    sources: tuple[SourceEvent, ...] = ()
    """Events in `document` that claims may rest on."""
    language: str = ""  # ISO 639-1 code of the language of the texts; empty if unknown
    mode: Mode = "listwise"
    mirrored: bool = True  # the reverse order is asked as well; without it letters are turned by a hash of the task
    vote: int = 0
    """Number of the repeat. It keeps repeats of a question from being answered from the cache."""
    conversation: tuple[Message, ...] = ()
    """What the model was asked. Only reward models read it: it is what they are trained on."""
    wanted: tuple[ReferenceKind, ...] = ()
    """Replies that the judge is to write itself, by `brief`. There are no candidates then, and no verdicts."""
    brief: str = ""
    fresh: bool = False
    """Ask the model even if the answer is cached, and cache nothing. It changes nothing that the model reads."""


class Defect(Frozen):
    code: str
    quote: str = ""
    """Verbatim from the candidate; empty when the fault is an omission."""


class Claim(Frozen):
    """A candidate's claim about an event."""

    quote: str
    """Verbatim from the candidate."""
    source: str | None
    """Id of the supporting event; null if no event supports the claim."""
    source_quote: str = ""
    """Verbatim from that event's text."""


class Verdict(Frozen):
    """The judge's verdict on one candidate. `scores` maps criteria to [0, 1]; null if a criterion does not apply."""

    candidate: str
    evidence: tuple[str, ...] = ()
    claims: Annotated[tuple[Claim, ...], Field(exclude_if=not_)] = ()
    """Claims, if the rubric asks for them. A claim without a source is also listed as a defect."""
    defects: tuple[Defect, ...] = ()
    scores: dict[str, Unit | None]
    note: str = ""
    reward: Annotated[FiniteNumber | None, Field(exclude_if=_is_none)] = None
    """What a reward model said, on a scale of its own. `scores` then has one entry, REWARD_CRITERION."""


REWARD_CRITERION: Final = "reward_model"
"""Name of the criterion of a reward model, which knows no rubric."""

JudgeFailure = Literal["unavailable", "unusable", "refused", "budget", "language"]
"""Why there are no verdicts: no answer, an unusable one, a refusal, a used-up budget, an unknown language."""


JudgingPurpose = Literal["score", "calibration", "references"]
"""What a judgement is for: a score, the calibrated values of a group, or replies that calibration needs."""


def _is_score(purpose: str) -> bool:
    return purpose == "score"


class Judgement(Frozen):
    """One judge's answer to one request, as stored. `error` is set, and verdicts empty, when it could not be used."""

    judge: str
    model: str
    order: tuple[str, ...]
    """Candidate ids as presented."""
    verdicts: tuple[Verdict, ...] = ()
    ranking: tuple[tuple[str, ...], ...] = ()
    """Best first; ids in one tuple are tied."""
    prompt: str = ""
    prompt_digest: str = ""
    raw: str = ""
    error: str | None = None
    failure: JudgeFailure | None = None
    """Kind of `error`; null if the judge does not report it."""
    input_tokens: int = 0
    output_tokens: int = 0
    cached_input_tokens: int = 0
    """How many of `input_tokens` the provider had in its prefix cache."""
    reasoning_tokens: int = 0
    """How many of `output_tokens` the model thought and did not say, where the server tells."""
    cost_usd: FiniteNumber | None = None
    """Null when no price is configured."""
    latency_seconds: FiniteNumber = 0.0
    calls: int = 0
    """Requests sent to the model, including the corrective retry; 0 for a judge without a model."""
    unanswered_calls: int = 0
    """How many of `calls` got no answer but may be charged, for example after a timeout."""
    unanswered_tokens: int = 0
    """Maximum tokens of the unanswered calls; not included in `input_tokens` and `output_tokens`."""
    unanswered_usd: FiniteNumber = 0.0
    """Maximum cost of the unanswered calls; not included in `cost_usd`. 0 when no price is configured."""
    cached: bool = False
    """Answered from the cache: nothing was sent and nothing was paid."""
    reading: str = ""
    """Digest of the request, used as the cache key. Empty for judges without a cache."""
    purpose: Annotated[JudgingPurpose, Field(exclude_if=_is_score)] = "score"
    served_model: Annotated[str, Field(exclude_if=not_)] = ""
    """The model that the server says answered; empty where it does not say."""
    system_fingerprint: Annotated[str, Field(exclude_if=not_)] = ""
    """The server's name for what ran behind the model; empty where it does not say."""
    instead_of: tuple["Judgement", ...] = ()
    """Unusable judgements of the judges asked before this one. They are stored as judgements of their own."""

    reduced: Annotated[ReducedReading | None, Field(exclude_if=_is_none)] = None
    """What is not kept of `prompt` and `raw`."""

    @property
    def attempts(self) -> tuple["Judgement", ...]:
        """The judgements that this one replaces, then this one."""
        if not self.instead_of:
            return (self,)
        return (*self.instead_of, self.model_copy(update={"instead_of": ()}))


class Spending(Frozen):
    """What a judge has used so far. The cost of unanswered calls is unknown; budgets count their maximum."""

    readings: int = 0
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_input_tokens: int = 0
    """How many of `input_tokens` providers had in their prefix caches."""
    reasoning_tokens: int = 0
    cost_usd: FiniteNumber = 0.0
    unanswered_calls: int = 0
    """How many of `calls` got no answer but may be charged."""
    unanswered_tokens: int = 0
    unanswered_usd: FiniteNumber = 0.0
    """Maximum cost of the unanswered calls."""

    def __add__(self, other: "Spending") -> "Spending":
        mine, more = dict(self), dict(other)
        return Spending.model_validate({name: value + more[name] for name, value in mine.items()})

    @classmethod
    def of_judgements(cls, judgements: Sequence[Judgement]) -> "Spending":
        names = [name for name in Spending.model_fields if name != "readings"]
        used = {name: sum(getattr(one, name) or 0 for one in judgements) for name in names}
        return cls(readings=len(judgements), **used)

    def add_judgement(self, judgement: Judgement) -> "Spending":
        return self + Spending.of_judgements([judgement])


class JudgeReport(Frozen):
    """Health and spending of a judge. Spending counts all processes on the database, the others' within seconds. The
    rest is since the service started. `changes` and `ignored`: what the server refuses and ignores."""

    health: Literal["ok", "probing", "out"]
    """The circuit breaker: `out` is open after repeated failures, `probing` half-open with one trial request."""
    last_error: str | None
    in_flight: int
    queued: int
    """Calls that wait for a rate or concurrency limit."""
    limit: int
    """Maximum number of concurrent calls of all processes on the same database; adapts to the server."""
    share: int = 0
    """How many of `limit` this process may make now."""
    spent: Spending
    spent_today: Spending
    budget_left_usd: FiniteNumber | None
    """What remains of the tightest money budget; null without one."""
    budget_left_tokens: int | None
    cache_hits: int
    changes: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()


class SecretTerms(Frozen):
    id: str
    terms: tuple[str, ...]
    """Any of these terms in a reply reveals the secret, unless the player said it first."""


class GateFacts(Frozen):
    """What the gates check a reply against: the speaker and the situation."""

    speaker: str
    aliases: tuple[str, ...] = ()
    others: tuple[str, ...] = ("Player", "User")
    """Names that the reply must not speak or act for."""
    is_machine: bool = False
    """The character is a machine and may say so."""
    secrets: tuple[SecretTerms, ...] = ()
    withheld_terms: tuple[str, ...] = ()
    """Terms of events that this character cannot know."""
    forbidden_words: tuple[str, ...] = ()
    prompt: str = ""
    """The system prompt, to detect replies that recite it."""
    player_said: str = ""
    history: tuple[str, ...] = ()
    """The speaker's own earlier lines."""
    examples: tuple[str, ...] = ()
    """The sheet's example lines, which replies must not copy."""
    max_words: int = 200
    language: str = "en"
    allowed_actions: tuple[str, ...] = ()
    """Actions that a reply may put in square brackets. Empty means the sheet sets no rule."""
    most_actions: int | None = None
    """Maximum number of actions in one reply; null for any number."""
    spoken_words_only: bool = False
    rubric: str = ""
    """The judges' rubric, to detect replies that recite it. A panel fills it in."""
    disabled: tuple[str, ...] = ()
    """Flags of gates that the sheet disables."""


class SpokenLine(Frozen):
    """One line that a model wrote in an episode, with the gate facts at that point."""

    text: str
    gates: GateFacts


class Case(Frozen):
    """A group to be judged by a panel. `key` seeds presentation orders and ids, so equal cases are judged alike."""

    key: str
    rubric: Rubric
    document: Document
    probes: Probes = Probes()
    gates: GateFacts | None = None
    sources: tuple[SourceEvent, ...] = ()
    language: str = ""
    """ISO 639-1 code; empty means the language of `gates`, if given."""
    candidates: tuple[str, ...]
    lines: tuple[tuple[SpokenLine, ...], ...] = ()
    """For transcripts of episodes: the model's lines per candidate, which gates check one by one."""
    conversation: tuple[Message, ...] = ()
    """What the model was asked, for reward models. Without it they cannot score."""
    episodes: tuple[tuple[Message, ...], ...] = ()
    """For transcripts of episodes: the messages per candidate."""


class PanelResult(Frozen):
    """One score per candidate, in request order, and all judgements, including failed ones."""

    scores: tuple[Score, ...]
    judgements: tuple[Judgement, ...] = ()
