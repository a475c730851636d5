"""What a judge is shown and what it answers; what the deterministic gates know of a character."""

from operator import not_
from typing import Annotated, Literal, Self

from pydantic import Field, JsonValue, SkipValidation, model_validator

from app.domain.scores import Score
from app.domain.values import FiniteNumber, Frozen, Unit

Document = Annotated[dict[str, JsonValue], SkipValidation]
"""JSON that we made ourselves. Never copied: every reading of a group shares it, and large sheets are in it."""

Mode = Literal["listwise", "pairwise", "pointwise"]
"""How a panel puts a group before a judge: all at once, two at a time, or one by one."""


class Requirement(Frozen):
    criterion: str
    at_least: Unit


class RubricCriterion(Frozen):
    """One thing to judge on an anchored scale of 0 to 4 (`anchors`: what such a reply is like, by level)."""

    name: str
    weight: Unit
    description: str
    anchors: dict[int, str]
    requires: Requirement | None = None
    """The criterion counts as 0 unless the named one reaches this value."""


class Bound(Frozen):
    criterion: str
    at_most: Unit


class DefectRule(Frozen):
    """A fault the judge may report. `cap` bounds the final reward of a completion that has it."""

    code: str
    description: str
    cap: Unit | None = None
    bounds: Annotated[Bound | None, Field(exclude_if=not_)] = None
    """The highest value that a criterion can have in a reading which reports the fault."""
    confirms: Annotated[str | None, Field(exclude_if=not_)] = None
    """A hint, by flag. Reported with a quote of a completion that has the hint, the fault closes the hint's gate."""


class ClaimRule(Frozen):
    """Verdicts list what a completion says of events, and code matches it to them."""

    criterion: str
    """Applies as soon as any completion claims something."""
    unsupported: str
    """The defect that a claim is which no event supports."""


class Rubric(Frozen):
    name: str
    version: str
    instructions: str
    criteria: tuple[RubricCriterion, ...]
    defects: tuple[DefectRule, ...] = ()
    claims: Annotated[ClaimRule | None, Field(exclude_if=not_)] = None
    """None: verdicts list no claims."""

    @model_validator(mode="after")
    def _names_its_own(self) -> Self:
        criteria = {criterion.name for criterion in self.criteria}
        named = {rule.bounds.criterion for rule in self.defects if rule.bounds is not None}
        if self.claims is not None:
            named.add(self.claims.criterion)
            if self.claims.unsupported not in {rule.code for rule in self.defects}:
                raise ValueError(f"claims: there is no defect {self.claims.unsupported!r}")
        if named - criteria:
            raise ValueError(f"there is no criterion {min(named - criteria)!r}")
        return self


class Source(Frozen):
    """An event that the speaker knows of, as judges are shown it: claims cite it by id."""

    id: str
    text: str


class Candidate(Frozen):
    """One completion under an opaque id."""

    id: str
    text: str
    own: str = ""
    """Where `text` is the transcript of an episode: the lines in it that the model wrote. Empty: all of it."""
    hints: tuple[str, ...] = ()
    """What word checks noticed that may well be nothing, in words."""


class Probes(Frozen):
    """References of one task, for judges only: they see what the reply should and should not contain."""

    must_mention: tuple[str, ...] = ()
    must_not_mention: tuple[str, ...] = ()
    voice: tuple[str, ...] = ()
    """Words and turns of phrase typical of the speaker."""
    facts: tuple[str, ...] = ()
    """True statements that the reply may draw on."""
    notes: str = ""
    """What this line of the player is meant to test."""


class JudgeRequest(Frozen):
    """One reading of one group: `candidates` in the order in which the judge is to see them."""

    rubric: Rubric
    document: Document
    """Everything the judge may know but the candidates: sheet, scene, conversation, passages. Data, never orders."""
    probes: Probes
    candidates: tuple[Candidate, ...]
    sources: tuple[Source, ...] = ()
    """Events in `document` that claims may rest on."""
    language: str = ""
    """ISO 639-1 code of what is judged; empty where nobody says."""
    mode: Mode = "listwise"
    vote: int = 0
    """Counts repeats of the same question, which would otherwise be answered from memory."""


class Defect(Frozen):
    code: str
    quote: str = ""
    """Verbatim from the candidate; empty when the fault is an omission."""


class Claim(Frozen):
    """Something that a candidate says of an event."""

    quote: str
    """Verbatim from the candidate."""
    source: str | None
    """The event that it rests on; null for one that no event supports."""
    source_quote: str = ""
    """Verbatim from that event's text."""


class Verdict(Frozen):
    """What the judge says of one candidate. `scores`: criterion name to [0, 1], null where it does not apply."""

    candidate: str
    evidence: tuple[str, ...] = ()
    claims: Annotated[tuple[Claim, ...], Field(exclude_if=not_)] = ()
    """Where the rubric asks for them. One without a source is among the defects too."""
    defects: tuple[Defect, ...] = ()
    scores: dict[str, Unit | None]
    note: str = ""


JudgeFailure = Literal["unavailable", "unusable", "refused", "budget", "language"]
"""Why a judgement has no verdicts: nothing came, what came cannot be read, the model declined, the money is up, or the
judge does not know the language or cannot tell it."""


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
    """The kind of `error`; null where the judge does not say."""
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: FiniteNumber | None = None
    """Null when no price is configured."""
    latency_seconds: FiniteNumber = 0.0
    calls: int = 0
    """Requests sent to the model, corrective retry included; 0 for a judge without a model."""
    unanswered_calls: int = 0
    """Of `calls`: those that brought no answer although the server may charge for them, such as after a timeout."""
    unanswered_tokens: int = 0
    """What these took at most; not in `input_tokens` and `output_tokens`, which are of answers."""
    unanswered_usd: FiniteNumber = 0.0
    """What these cost at most; not in `cost_usd`. 0 when no price is configured."""
    cached: bool = False
    """Answered from memory: nothing was sent and nothing was paid."""
    reading: str = ""
    """What was asked, as a digest: equal for an answer and its repetitions from memory. Empty for judges that keep no
    memory."""
    instead_of: tuple["Judgement", ...] = ()
    """What judges said that were asked before this one and gave nothing of use. Stored as judgements of their own."""

    @property
    def each(self) -> tuple["Judgement", ...]:
        """This judgement and those it stands in for, in the order in which they were made."""
        if not self.instead_of:
            return (self,)
        return (*self.instead_of, self.model_copy(update={"instead_of": ()}))


class Spending(Frozen):
    """What a judge has used up so far. What calls without an answer may have cost is apart: nobody knows it, and
    budgets count it in full."""

    readings: int = 0
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: FiniteNumber = 0.0
    """The sum over the judgements."""
    unanswered_calls: int = 0
    """Of `calls`: those that brought no answer although the server may charge for them."""
    unanswered_tokens: int = 0
    unanswered_usd: FiniteNumber = 0.0
    """What those cost at most."""

    def __add__(self, other: "Spending") -> "Spending":
        mine, more = dict(self), dict(other)
        return Spending.model_validate({name: value + more[name] for name, value in mine.items()})

    def plus(self, judgement: Judgement) -> "Spending":
        return self + Spending(
            readings=1,
            calls=judgement.calls,
            input_tokens=judgement.input_tokens,
            output_tokens=judgement.output_tokens,
            cost_usd=judgement.cost_usd or 0.0,
            unanswered_calls=judgement.unanswered_calls,
            unanswered_tokens=judgement.unanswered_tokens,
            unanswered_usd=judgement.unanswered_usd,
        )


class JudgeReport(Frozen):
    """How a judge is doing. Spending is since the database was made, or of the present day in UTC, by everybody who
    asks this judge over the same database; what others spend shows within seconds."""

    health: Literal["ok", "probing", "out"]
    """`out`: not asked at present, because it failed again and again; `probing`: one question finds out whether it is
    back."""
    last_error: str | None
    """The latest failure of a call since the service started."""
    in_flight: int
    queued: int
    """Calls that wait for one of the limits."""
    limit: int
    """Calls that may be under way at once: adapts to what the server takes."""
    spent: Spending
    spent_today: Spending
    budget_left_usd: FiniteNumber | None
    """Of the tightest budget in money; null without one."""
    budget_left_tokens: int | None
    cache_hits: int
    """Readings answered from memory since the service started."""


class Secret(Frozen):
    id: str
    terms: tuple[str, ...]
    """Any of these in a reply gives the secret away, unless the player said it first."""


class GateFacts(Frozen):
    """What the gates need to know of the speaker and the moment."""

    speaker: str
    aliases: tuple[str, ...] = ()
    others: tuple[str, ...] = ("Player", "User")
    """Names under which the reply must not speak or act."""
    is_machine: bool = False
    """The character really is a machine and may say so."""
    secrets: tuple[Secret, ...] = ()
    withheld_terms: tuple[str, ...] = ()
    """Terms of events that this character cannot know of."""
    forbidden_words: tuple[str, ...] = ()
    prompt: str = ""
    """The system prompt, to notice replies that recite it."""
    player_said: str = ""
    history: tuple[str, ...] = ()
    """The speaker's own earlier lines."""
    examples: tuple[str, ...] = ()
    """The sheet's example lines: to be imitated, not copied."""
    max_words: int = 200
    language: str = "en"
    allowed_actions: tuple[str, ...] = ()
    """Names that a reply may put between square brackets to act; empty: the sheet says nothing about actions."""
    most_actions: int | None = None
    """In one reply; null for any number."""
    rubric: str = ""
    """What judges are told, to notice replies that recite it; a panel fills it in."""
    disabled: tuple[str, ...] = ()
    """Gates this sheet switches off, by flag."""


class SpokenLine(Frozen):
    """One line that a model wrote within an episode, with what the gates know at that moment."""

    text: str
    gates: GateFacts


class Case(Frozen):
    """A group put before a panel. `key` seeds presentation orders and ids, so equal cases are read alike."""

    key: str
    rubric: Rubric
    document: Document
    probes: Probes = Probes()
    gates: GateFacts | None = None
    sources: tuple[Source, ...] = ()
    language: str = ""
    """ISO 639-1 code; empty: that of `gates`, where there are any."""
    candidates: tuple[str, ...]
    lines: tuple[tuple[SpokenLine, ...], ...] = ()
    """Per candidate, where candidates are transcripts of episodes: gates then read these lines one by one."""


class PanelResult(Frozen):
    """One score per candidate in request order, and every judgement made on the way, failed ones included."""

    scores: tuple[Score, ...]
    judgements: tuple[Judgement, ...] = ()
