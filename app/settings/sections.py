"""The sections of the settings."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, IPvAnyNetwork, JsonValue, SecretStr, model_validator

from app.domain.access import Scopes
from app.domain.judging import Mode
from app.domain.keeping import KeepLevel
from app.domain.parts import PartRules
from app.domain.retention import RunPattern
from app.domain.runs import Purpose, ScoringOptions
from app.domain.values import Frozen, Name, Unit
from app.judges.configuration import OWN_PARAMETERS

# Browsers of other sites.

_ORIGIN: Final = re.compile(r"https?://[a-z0-9.-]+(:[0-9]{1,5})?|https?://\[[0-9a-f:]+\](:[0-9]{1,5})?")
_HOST: Final = re.compile(r"[a-z0-9._-]+|[0-9a-f:]+")


def check_origin(origin: str) -> str:
    """In small letters. ValueError for what no browser sends, and for `*`: it would let every site act here."""
    origin = origin.lower().removesuffix("/")
    if not _ORIGIN.fullmatch(origin):
        named = origin.rpartition("@")[2]  # without a password
        raise ValueError(f"{named!r} is no origin such as https://game.example or http://localhost:3000")
    return origin


def check_host(host: str) -> str:
    """In small letters, without brackets."""
    host = host.lower().removeprefix("[").removesuffix("]")
    if not _HOST.fullmatch(host):
        raise ValueError(f"{host!r} is no name or address of a host; leave out the port")
    return host


# Servers of models: what judges and policies share, and policies.

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HEADER_VALUE: Final = re.compile(r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?")
_OWN_HEADERS: Final = frozenset(
    ("accept", "accept-encoding", "connection", "content-length", "content-type", "host", "transfer-encoding")
)
_POLICY_PARAMETERS: Final = frozenset(("messages", "model", "stream", "n"))


def _check_extra_headers(headers: dict[str, SecretStr]) -> dict[str, SecretStr]:
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no name of a header")
        if name.casefold() in _OWN_HEADERS:
            raise ValueError(f"{name!r} is set by the service")
        if not _HEADER_VALUE.fullmatch(value.get_secret_value()):
            raise ValueError(f"the value of {name!r} is empty, or has characters that no header can hold")
    if len({name.casefold() for name in headers}) < len(headers):
        raise ValueError("two names differ in their case alone")
    return headers


def _check_policy_body(body: dict[str, JsonValue]) -> dict[str, JsonValue]:
    for name in body:
        if name in _POLICY_PARAMETERS:
            raise ValueError(f"{name!r} is set by the service")
    return body


class ServerSettings(Frozen):
    base_url: str
    """Of an OpenAI-compatible API, ending in `/v1` for most servers. Of a reward model's server: without a path."""
    model: str
    """As that API names it."""
    api_key_env: str | None = None
    """The variable that holds the key; none for servers that need no key."""
    api_key_file: Path | None = None
    """The file that holds the key, such as a mounted secret, in place of `api_key_env`. It is read again when it
    changes."""
    extra_headers: Annotated[dict[str, SecretStr], AfterValidator(_check_extra_headers)] = {}
    """Further headers of each request. Their values are never shown."""
    api_version: Annotated[str, Field(pattern=r"^[A-Za-z0-9.-]+$")] | None = None
    """Of Azure OpenAI, such as `2024-10-21`: `base_url` is then the resource, such as
    `https://name.openai.azure.com`, and `model` the deployment. None for every other server, and for Azure's own
    `/openai/v1`."""


class PlayerSettings(Frozen):
    """How a policy plays players of episodes, and what it may take. Prices, limits and budgets are as for judges."""

    temperature: Annotated[float, Field(ge=0, le=2)] = 0.8
    seed: int | None = None
    """Sent where it is set."""
    max_output_tokens: Annotated[int, Field(ge=64)] = 1024
    """Of one answer, thought included."""
    deadline_seconds: Annotated[float, Field(gt=0, le=3600)] = 60.0
    """For one line, every retry included."""
    input_price_per_million: Annotated[float, Field(ge=0)] | None = None
    """US dollars per million prompt tokens."""
    output_price_per_million: Annotated[float, Field(ge=0)] | None = None
    """US dollars per million completion tokens."""
    max_concurrency: Annotated[int, Field(ge=1, le=10_000)] = 64
    """Calls at once: falls when the server answers 429 and slowly comes back."""
    budget_usd: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """US dollars for as long as the database lives, over all replicas. A call that might exceed it is not made, and
    its episode is `unscored: player_failed`. Needs prices."""
    budget_usd_per_day: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """The same for each day in UTC."""
    budget_tokens: Annotated[int, Field(ge=0)] | None = None
    """Tokens of prompts and answers for as long as the database lives."""
    allow_judge: bool = False
    """Let it play in runs that the same model judges."""


class PolicySettings(ServerSettings):
    """A model that people talk to, trained here or not."""

    temperature: Annotated[float, Field(ge=0, le=2)] = 1.0
    """Where the client asks for none."""
    max_output_tokens: Annotated[int, Field(ge=1)] = 512
    """The longest reply, also where the client asks for more."""
    deadline_seconds: Annotated[float, Field(gt=0, le=3600)] = 120.0
    """The longest that a reply may take, and a stream be silent."""
    extra_body: Annotated[dict[str, JsonValue], AfterValidator(_check_policy_body)] = {}
    """Further fields of each request, such as `chat_template_kwargs`. They replace what the client asks for."""
    continue_body: dict[str, JsonValue] = {"add_generation_prompt": False, "continue_final_message": True}
    """Further fields of requests that continue a reply, whose beginning stands last: as vLLM and SGLang take them. `{}`
    for a server that refuses them."""
    tools: bool = False
    """Whether its server reads calls of tools, so that characters with typed actions may act. Without it they are asked
    for words alone, unless the client itself sends tools."""
    as_player: PlayerSettings | None = None
    """Lets it play players of episodes, where params name it; `{}` is enough. See `docs/players.md`."""


def _read_digits(value: object) -> object:
    """Variables of the process are text."""
    return int(value) if isinstance(value, str) and value.isdecimal() else value


def _check_server_url(url: str) -> str:
    parts = urlsplit(url)
    if url and (parts.scheme not in {"http", "https"} or not parts.hostname):
        raise ValueError("must be a URL that begins with http:// or https://")
    if parts.username is not None or parts.password is not None:
        raise ValueError("must not hold a user or password; set api_key_env")
    return url


_OF_ALL_KINDS: Final = frozenset(
    ("max_turns", "sessions", "deadline_seconds", "idle_seconds", "replay", "reward_range")
)


@dataclass(frozen=True)
class _ForeignKind:
    """Of the settings below, without those of all kinds."""

    needs: tuple[str, ...]
    takes: tuple[str, ...]


_FOREIGN_KINDS: Final[Mapping[str, _ForeignKind]] = MappingProxyType(
    {
        "openenv": _ForeignKind(
            needs=("url",),
            takes=(
                "api_key_env",
                "action_field",
                "observation_field",
                "final_tool",
                "reset",
                "instructions",
                "hand_back_errors",
            ),
        ),
        "nemo_gym": _ForeignKind(
            needs=("url", "rows"),
            takes=("api_key_env", "test_rows"),
        ),
        "verifiers": _ForeignKind(
            needs=("package", "python"),
            takes=("args", "folders", "variables", "tasks", "test", "trusted", "memory_mb"),
        ),
    }
)


class ForeignSettings(Frozen):
    """An environment that runs on another's server, or in a child with packages of its own. See `docs/foreign.md`."""

    serve: Literal["openenv", "nemo_gym", "verifiers"] | None = None
    """Serve another's environment under this name: a server of OpenEnv's or a resources server of NeMo Gym's by `url`,
    or a task set of verifiers' by `package`. None for an environment of ours, which takes none of the settings below
    up to `reward_range`."""
    url: Annotated[str, AfterValidator(_check_server_url)] = ""
    """Of the server (`openenv`, `nemo_gym`)."""
    api_key_env: str | None = None
    """The variable that holds its key, sent as a Bearer token (`openenv`, `nemo_gym`)."""
    action_field: str = ""
    """Where the model's text goes in an action; found in the server's schema by default (`openenv`)."""
    observation_field: str = ""
    """A dotted path to the text of an observation; found by the usual names by default (`openenv`)."""
    final_tool: str = ""
    """The tool that gets a reply without calls; such a reply ends the episode by default (`openenv`)."""
    reset: dict[str, JsonValue] = {}
    """Further arguments of every reset (`openenv`)."""
    instructions: str = ""
    """A system message before the first observation (`openenv`)."""
    hand_back_errors: bool = False
    """What the environment raises at an action is the model's fault, and handed back to it. By default the episode then
    has no score, by which a policy could dodge a loss where bad moves raise (`openenv`)."""
    rows: Path | None = None
    """A file of rows, a JSON object a line, as NeMo Gym has them (`nemo_gym`)."""
    test_rows: Path | None = None
    """Rows of the test split (`nemo_gym`)."""
    package: str = ""
    """The module that exports the task set, or has `load_environment` (`verifiers`)."""
    python: Path | None = None
    """The interpreter of a virtual environment that has the package and verifiers (`verifiers`)."""
    args: dict[str, JsonValue] = {}
    """Fields of the task set's config, or arguments of `load_environment` (`verifiers`)."""
    folders: tuple[Path, ...] = ()
    """What the child may read besides its packages; modules are looked for there first. Where the service is root, the
    user `nobody` must be able to read them (`verifiers`)."""
    variables: tuple[str, ...] = ()
    """Names of the service's variables that the child gets; it sees no others (`verifiers`)."""
    tasks: Annotated[int, Field(ge=1, le=1_000_000)] = 10_000
    """Tasks that are read at most (`verifiers`)."""
    test: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """How many of the tasks, the last ones, are the test split (`verifiers`)."""
    trusted: bool = False
    """Run the child without a jail, with the service's rights and the network (`verifiers`)."""
    memory_mb: Annotated[int, Field(ge=128, le=1_048_576)] = 8192
    """Address space of each process of the child (`verifiers`)."""
    max_turns: Annotated[int, Field(ge=1, le=1000)] = 16
    """Replies of an episode at most."""
    sessions: Annotated[int, Field(ge=1, le=100_000)] = 8
    """Episodes that are open at once at most, in each process. Where all are in use, whoever asks waits, and then is
    told to come back."""
    deadline_seconds: Annotated[float, Field(gt=0, le=3600)] = 60.0
    """For opening an episode, and for each step. Without an answer by then the episode has no score."""
    idle_seconds: Annotated[float, Field(gt=0, le=86_400)] = 600.0
    """After so long without a step the server's session is closed. A later step plays it again."""
    replay: bool | None = None
    """Whether a lost session is played again. By default where two tries at the start came out alike. True says so for
    a server that cannot be tried. False for one that costs money or writes elsewhere: an episode whose session is lost
    has no score then."""
    reward_range: tuple[float, float] = (0.0, 1.0)
    """Where its rewards lie. They pass as they are; their place in here is `absolute`, which evaluation and difficulty
    targets use."""

    @model_validator(mode="after")
    def _require_server(self) -> Self:
        fields = type(self).model_fields
        given = {name for name in fields if getattr(self, name) != fields[name].default} - {"serve"}
        kind = None if self.serve is None else _FOREIGN_KINDS[self.serve]
        if kind is None:
            stray = given & ForeignSettings.model_fields.keys()
        else:
            stray = given - {*_OF_ALL_KINDS, *kind.needs, *kind.takes}
        if stray:
            taker = "without `serve`" if self.serve is None else f"with `serve: {self.serve}`"
            raise ValueError(f"`{min(stray)}` is not taken {taker}")
        if kind is not None and (lacking := [name for name in kind.needs if not getattr(self, name)]):
            raise ValueError(f"`serve: {self.serve}` needs `{lacking[0]}`")
        if self.reward_range[0] >= self.reward_range[1]:
            raise ValueError("`reward_range` must be two numbers, the smaller one first")
        return self


class EnvironmentSettings(ForeignSettings):
    judges: tuple[Name, ...] = ()
    """Names of judges from `judges`; the offline judge when empty."""
    mode: Mode | None = None
    """How judges read a group where a run does not say: `listwise` (all at once, in mirrored orders; the default),
    `pairwise` or `pointwise`."""
    votes: Annotated[int, Field(ge=1, le=9)] | None = None
    """How often a judge is asked the same, in each order (`pairwise`) or of each completion (`pointwise`); 1 by
    default."""
    readings: Annotated[Literal[1, 2, 4] | None, BeforeValidator(_read_digits)] = None
    """How often a group is read at most in `listwise`, by all judges together. Each judge reads it at least once. 1 is
    one order, 2 is mirrored orders, and 4 adds two more where those leave doubt (the default)."""
    relative_weight: Unit | None = None
    """Share of the standing within the group in a judged reward; 0.5 by default."""
    calibration_share: Unit | None = None
    """Share of the tasks whose groups are read once more beside replies of known level. With it `calibrated` means the
    same throughout a run. By default it is 0.01, 0.02 or 0.025 with 1, 2 or 4 readings, which costs about one hundredth
    more. 0 turns it off. No reward depends on it."""
    rubric: Path | None = None
    """A YAML file with the rubric that judges score by in place of the environment's own; `npc_arena` takes one.
    `atropos-envs rubrics write` makes one to start from. It is read at the start."""

    shadow_judge: Name | None = None
    """A judge of another model that reads some groups of each run for its health alone; see `docs/run_health.md`."""

    @property
    def options(self) -> ScoringOptions:
        """Without the rubric, which has to be read first."""
        return ScoringOptions(
            mode=self.mode,
            votes=self.votes,
            readings=self.readings,
            judges=self.judges,
            relative_weight=self.relative_weight,
            calibration_share=self.calibration_share,
        )


def _check_webhook(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError("must be a URL that begins with http:// or https://")
    if parts.username is not None or parts.password is not None:
        raise ValueError("must not hold a user or password; set webhook_secret_env")
    return url


class RemoteSettings(Frozen):
    url: str = ""
    """Where queries are posted, `http://` or `https://`; a remote retriever needs one. Redirects are not followed."""
    api_key_env: str | None = None
    """The variable that holds the key, sent as a Bearer token; none for servers that need no key."""
    allow_hosts: tuple[str, ...] = ()
    """Hosts that `url` may name, for those who set the two in different places; any when empty."""
    allow_private: bool = False
    """Let a name stand for addresses of this machine or its network. An address that `url` itself spells out needs no
    leave, nor does `localhost`."""


class RagSettings(Frozen):
    retriever: str = "worlds"
    """What is asked for the passages of a prompt: `worlds` (the events and lorebooks kept here), `remote`, or the name
    of an entry point in the group `atropos_environments.retrievers`."""
    on_failure: Literal["refuse", "without"] = "refuse"
    """What happens to tasks when the retriever fails. `refuse` answers 503 `retriever_failed` and hands out nothing.
    `without` hands them out without passages, and says so in their metadata and in the flags of their scores."""
    deadline_seconds: Annotated[float, Field(gt=0, le=60)] = 2.0
    """For one query, every retry included; whatever the retriever is."""
    remote: RemoteSettings = RemoteSettings()
    """The retriever behind a URL."""


class TracingSettings(Frozen):
    send_traceparent: bool = True
    """Tell judges and remote retrievers the trace that a call belongs to, in the header `traceparent`. It holds two
    random numbers and whether the trace is kept."""


class ProgramSettings(Frozen):
    allow_weak_isolation: bool = False
    """Let environments serve that run programs which models wrote, though these cannot be kept apart well enough on
    this machine: only where nothing on it is worth protecting."""
    at_once: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Such programs at most that run at the same time; as many as there are processor cores, and at least 2, by
    default."""


class HealthSettings(Frozen):
    webhook: Annotated[str, AfterValidator(_check_webhook)] | None = None
    """Where alarms of runs are posted as JSON, `http://` or `https://`. Redirects are not followed. What is not taken
    is sent again for hours; scoring never waits for it."""
    webhook_secret_env: str | None = None
    """The variable that holds the secret by which the body is signed, in the header `X-Atropos-Signature-256`."""


class KeepSettings(Frozen):
    level: KeepLevel = "all"
    """`all` of them, or scores and `texts` only: digests stand in the place of token ids, log-probabilities, and what
    judges were asked and answered word for word. Runs may say something else."""
    after_hours: Annotated[float, Field(ge=0, le=24 * 365)] = 24.0
    """Scored training groups are whole for so long. Give exports, labels and whoever looks at groups time."""


class RetentionSettings(Frozen):
    older_than_days: Positive | None = None
    """Groups that are older are removed, with their rollouts and judgements, and so are leases that ended, idempotency
    keys and cached judgements of that age. Statistics and tasks stay. None: nothing is ever removed. See
    `docs/retention.md`."""
    runs: tuple[RunPattern, ...] = ()
    """Only groups of these runs, or of all that begin `so*`; all by default."""
    purposes: Annotated[tuple[Purpose, ...], Field(min_length=1)] = ("train",)
    """Only groups of these purposes: `train`, `eval`."""
    play_days: Positive = 30.0
    """What people said to characters, and the replies, are removed after so many days."""
    keep: KeepSettings = KeepSettings()
    """What stays of scored training groups after a time. Runs may choose for themselves (`PUT /runs/{run}`). See
    `docs/retention.md`."""


class PlaySettings(Frozen):
    ai: bool = False
    """Tell clients of `/play/v1` that an AI answers: `"ai": true` stands with each model and with each reply."""
    notice: Annotated[str, Field(min_length=1, max_length=500)] | None = None
    """A sentence for people, which clients get beside `ai` and the page Talk shows. Needs `ai: true`."""

    @model_validator(mode="after")
    def _require_ai(self) -> Self:
        if self.notice is not None and not self.ai:
            raise ValueError("notice: needs `ai: true`")
        return self

    @property
    def disclosure(self) -> dict[str, JsonValue]:
        """The fields that clients get; none where the settings are off."""
        return self.model_dump(exclude_none=True) if self.ai else {}


class SignInSettings(Frozen):
    hours: Annotated[float, Field(gt=0, le=24 * 90)] = 12.0
    """For so long a browser stays signed in with a key."""
    per_key: Annotated[int, Field(ge=1, le=10_000)] = 20
    """So many browsers may be signed in with one key. A further one is refused, and none is signed out for it."""
    proxy_header: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9-]{0,99}$")] | None = None
    """The header in which a proxy in front names the person that it signed in, such as `X-Forwarded-User`. The proxy
    must remove it from what clients send. None: nobody is signed in by a header."""
    proxy_addresses: tuple[IPvAnyNetwork, ...] = ()
    """The addresses of that proxy, one by one: a range is refused. The header of anybody else counts for nothing."""
    proxy_scopes: Scopes = ("read",)
    """What such a person may do who has no named key. Who has one, under the name that the header gives, may do what
    the key may, within its bounds."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.proxy_header is None) != (not self.proxy_addresses):
            raise ValueError("proxy_header and proxy_addresses need each other")
        for network in self.proxy_addresses:
            if network.num_addresses > 1:  # of a cluster's pods, anybody may be among them
                raise ValueError(
                    f"proxy_addresses: {network} is a range; name each proxy by its own address, since whoever "
                    "connects from one signs in as anybody"
                )
        return self


class CompatSettings(Frozen):
    unscored: Literal["error", "neutral_group"] = "error"
    """What OpenRLHF and slime are told where there is no score. With `neutral_group`, every member of a group gets the
    same number (`unscored_reward`, else 0) if one has no score. So none has an advantage over the mean of its group.
    Not for a trainer with a critic, which learns the number. NeMo Gym is told so in any case, as its contract
    can mask them."""
    unscored_reward: Annotated[float, Field(ge=-10, le=10, allow_inf_nan=False)] | None = None
    """The number that trainers are told where there is no score and their contract has no word for that (OpenRLHF,
    slime). Without one they are answered 503 and ask again. A number is trained on as if it had been judged: each is
    counted, and the log says at start that one is set."""
    openenv_sessions: Annotated[int, Field(ge=1, le=1_000_000)] = 10_000
    """Web sockets of OpenEnv's clients at most; further ones are refused with CAPACITY_REACHED."""
    openenv_idle_seconds: Positive = 1800.0
    """A client that sends nothing for so long is disconnected. Trainers keep their connections while they learn. For as
    long an episode can be continued whose connection ended."""


class NemoGymPort(Frozen):
    port: Annotated[int, Field(ge=1, le=65535)]
    """The port, which differs from all others."""
    environment: Name
    """What is served there: `/compat/nemo_gym/<environment>`."""
    run: Name | None = None
    """The job's name. This and the next ones are options of the address, see the interface's page; they hold for every
    request at this port."""
    group_size: Annotated[int, Field(ge=1, le=256)] | None = None
    """Rollouts of a row that are compared with one another; 1 by default."""
    model: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """The policy's name."""
    gather_seconds: Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False)] | None = None
    """How long a group waits for its last rollouts; 300 by default."""
    wait_seconds: Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)] | None = None
    """The answer comes after so many seconds at the latest; 900 by default."""

    @property
    def options(self) -> dict[str, str | int | float]:
        """Those that are set."""
        given: dict[str, str | int | float] = self.model_dump(
            include={"run", "group_size", "model", "gather_seconds", "wait_seconds"}, exclude_none=True
        )
        return given


class OrsPort(NemoGymPort):
    environment: Name
    """What is served there: `/compat/ors/<environment>`."""
    params: dict[str, JsonValue] = {}
    """The environment's params, for every task."""

    @property
    def options(self) -> dict[str, str | int | float]:
        return super().options | ({"params": json.dumps(self.params)} if self.params else {})


class PartSettings(Frozen):
    deadline_seconds: Annotated[float, Field(gt=0, le=86_400)] = 60.0
    """A group that comes in pieces is judged so long after its first piece, whatever has come by then."""

    @property
    def rules(self) -> PartRules:
        return PartRules(self.deadline_seconds)


# Judges.

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
    """After as many failures in a row over more than 5 seconds the judge is left alone for half a minute. Then one call
    finds out whether it is back."""
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
