"""Settings of judges."""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, JsonValue, model_validator

from app.domain.values import Name
from app.judges.configuration import OWN_PARAMETERS
from app.settings.server_sections import Positive, ServerSettings

JudgeFormat = Literal["schema", "object", "off"]
RewardRoute = Literal["vllm_classify", "vllm_pooling", "sglang_classify", "tei_predict", "openrlhf"]


def _normalise_judge_format(value: object) -> object:
    """YAML reads `off` as false, and this was a yes or no once."""
    return {"true": "object", "false": "off"}.get(str(value).casefold(), value)


def _read_null(value: object) -> object:
    """A variable cannot hold YAML's null."""
    return None if value == "null" else value


def _check_extra_body(body: dict[str, JsonValue]) -> dict[str, JsonValue]:
    for name in body:
        if name in OWN_PARAMETERS:
            instead = OWN_PARAMETERS[name]
            raise ValueError(f"{name!r} is set by the service" + (f"; use the setting {instead}" if instead else ""))
    return body


_CHAT_ONLY = frozenset(
    ("temperature", "max_output_tokens", "token_parameter", "json_mode", "expected_scores", "fallback")
)
_REWARD_ONLY = frozenset(("route", "chat_template", "reward_center", "reward_scale"))


class JudgeSettings(ServerSettings):
    kind: Literal["chat", "reward_model"] = "chat"
    """`chat` reads a group by the rubric. `reward_model` gives one number for a conversation, by `route`."""
    route: RewardRoute | None = None
    """How a reward model is asked: `vllm_classify` (`POST /classify`), `vllm_pooling` (`/pooling`), `sglang_classify`
    (`/classify`), `tei_predict` (`/predict`) or `openrlhf` (`/get_reward`)."""
    chat_template: Literal["server"] | Path | None = None
    """Who turns a conversation into the reward model's text: `server` (vLLM alone can), or this service, with the chat
    template of a tokenizer's folder or a Jinja file. A reward model needs one of them."""
    reward_center: Annotated[float, Field(allow_inf_nan=False)] = 0.0
    """The reward that is worth an absolute score of 0.5, where reward models judge alone."""
    reward_scale: Positive = 1.0
    """A reply that is better by so much is worth 0.73 there."""
    deadline_seconds: Annotated[float, Field(gt=0, le=3600)] = 60.0
    """For one reading of a group, every retry included; waiting for the limits below does not count. A group may need
    several readings, one after the other: `judging_seconds` bounds them together."""
    queue_seconds: Annotated[float, Field(gt=0, le=86_400)] = 600.0
    """The longest that a reading waits for those limits before it fails."""
    temperature: Annotated[Annotated[float, Field(ge=0, le=2)] | None, BeforeValidator(_read_null)] = 0.0
    """0 for verdicts that repeat as far as the server allows; null sends none."""
    seed: int | None = None
    """Sent where it is set. Each further vote adds one to it."""
    max_output_tokens: Annotated[int, Field(ge=64)] = 4096
    """A verdict that is cut off there counts as a failed one."""
    token_parameter: Annotated[Literal["max_tokens", "max_completion_tokens"] | None, BeforeValidator(_read_null)] = (
        "max_tokens"  # noqa: S105
    )
    """What this API calls the bound above; null sends none, and budgets still reckon with it."""
    extra_body: Annotated[dict[str, JsonValue], AfterValidator(_check_extra_body)] = {}
    """Further fields of each request, such as `reasoning_effort`, `chat_template_kwargs` or `provider`."""
    json_mode: Annotated[JudgeFormat, BeforeValidator(_normalise_judge_format)] = "object"
    """`schema` asks the server for the very form of the verdict, `object` for any JSON, `off` says it in words alone. A
    server that refuses a form is asked in the next weaker one."""
    verdict_form: Literal["long", "short"] = "short"
    """How much the judge writes. `short`: scores by criterion, a quote for each defect and claim, a note of at most
    twelve words, and a sentence for the best, the worst and each with a defect. `long`: one entry per reply, also with
    quotes that decided and a sentence for each."""
    expected_scores: bool = False
    """Ask the server for token probabilities, and take for each score the mean over the numbers that the judge might
    have said. Where the server sends none, the number that it said counts."""
    input_price_per_million: Annotated[float, Field(ge=0)] | None = None
    """US dollars per million prompt tokens."""
    output_price_per_million: Annotated[float, Field(ge=0)] | None = None
    """US dollars per million completion tokens."""
    cached_input_price_per_million: Annotated[float, Field(ge=0)] | None = None
    """Of those that the provider had in its prefix cache; as the others where it is not given."""
    largest_group: Annotated[int, Field(ge=2, le=64)] = 16
    """Most different replies in one question (`listwise`). A larger group is read in overlapping chunks. A weak judge
    does better with fewer, at more calls."""
    warm_cache: bool = True
    """Send the first reading of a group ahead, so that the others find the prompt in the provider's prefix cache. Off:
    all at once, where latency matters more than cost."""
    max_concurrency: Annotated[int, Field(ge=1, le=10_000)] = 64
    """Calls at once: falls when the server answers 429 and slowly comes back."""
    requests_per_minute: Positive | None = None
    """Never faster than this."""
    tokens_per_minute: Positive | None = None
    """Of prompts and answers together."""
    budget_usd: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """US dollars for as long as the database lives, over all replicas and commands. A call that might exceed it is not
    made, and what it would have scored is `unscored: budget`. Calls that may have been charged though no answer came,
    such as after a timeout, count as what they may cost at most. Needs prices."""
    budget_usd_per_day: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """The same for each day in UTC."""
    budget_tokens: Annotated[int, Field(ge=0)] | None = None
    """Tokens of prompts and answers for as long as the database lives."""
    breaker_failures: Annotated[int, Field(ge=1)] = 5
    """After as many failures in a row over more than 5 seconds the judge is left alone for a while."""
    breaker_seconds: Positive = 30.0
    """For so long; then one call finds out whether it is back."""
    fallback: Name | None = None
    """The judge that is asked when this one refuses, or gives no answer that can be used; by its name."""
    allow_self_judge: bool = False
    """Let this judge score a policy that is its own model."""

    @model_validator(mode="after")
    def _check_kind(self) -> Self:
        """Settings that would do nothing are refused, and so are routes that get no text."""
        fields = type(self).model_fields
        others = _CHAT_ONLY if self.kind == "reward_model" else _REWARD_ONLY
        idle = [name for name in sorted(others) if getattr(self, name) != fields[name].default]
        if idle:
            raise ValueError(f"a judge of the kind {self.kind} has no {idle[0]}")
        if self.kind == "chat":
            return self
        if self.route is None or self.chat_template is None:
            raise ValueError("a reward model needs route and chat_template")
        if self.chat_template == "server" and not self.route.startswith("vllm_"):
            raise ValueError(f"chat_template: a server asked by {self.route} takes text; name a tokenizer's folder")
        if self.base_url.rstrip("/").endswith("/v1"):
            raise ValueError("base_url: the routes of reward models are not below /v1; leave it out")
        return self
