"""Every setting, read once: `ATROPOS_ENVS_*` variables over one YAML file. Nothing else reads the environment."""

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    SecretStr,
    ValidationError,
    model_validator,
)
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    YamlConfigSettingsSource,
)
from pydantic_settings import SettingsError as UnreadableSource

from app.domain.errors import UserError
from app.domain.faults import explain_faults, explain_os_error, explain_yaml_error, find_yaml_line
from app.domain.keeping import KEPT_PARTS, read_former_rule
from app.domain.tasks import DatasetSources
from app.domain.values import Described, Name, suggest
from app.settings.sections import CompatSettings as CompatSettings
from app.settings.sections import EnvironmentSettings as EnvironmentSettings
from app.settings.sections import HealthSettings as HealthSettings
from app.settings.sections import JudgeSettings as JudgeSettings
from app.settings.sections import NemoGymPort as NemoGymPort
from app.settings.sections import OrsPort as OrsPort
from app.settings.sections import PartSettings as PartSettings
from app.settings.sections import PlayerSettings as PlayerSettings
from app.settings.sections import PlaySettings as PlaySettings
from app.settings.sections import PolicySettings as PolicySettings
from app.settings.sections import Positive, check_host, check_origin
from app.settings.sections import ProgramSettings as ProgramSettings
from app.settings.sections import RagSettings as RagSettings
from app.settings.sections import RemoteSettings as RemoteSettings
from app.settings.sections import RetentionSettings as RetentionSettings
from app.settings.sections import ServerSettings as ServerSettings
from app.settings.sections import SignInSettings as SignInSettings
from app.settings.sections import TracingSettings as TracingSettings

# Problems in sentences: where something was set, and what may have been meant.

PREFIX: Final = "ATROPOS_ENVS_"
DEFAULT_FILE: Final = "gateway.yaml"
_KUBERNETES: Final = re.compile(r"PORT|PORT_\d+_\w+|SERVICE_(HOST|PORT)(_\w+)?")
"""What it sets, behind the prefix, for a service called atropos-envs."""


class SettingsError(UserError):
    """A line for each thing that is wrong."""


def settings_file() -> Path:
    return Path(os.environ.get(PREFIX + "SETTINGS") or DEFAULT_FILE)


def find_where_set(key: Sequence[str | int]) -> str:
    """Where a setting was given: its variable, or file, line and key."""
    for end in range(len(key), 0, -1):
        variable = PREFIX + "__".join(map(str, key[:end])).upper()
        if variable in os.environ:
            return variable
    if not key:
        return "settings"
    file, dotted = settings_file(), ".".join(map(str, key))
    return f"{file}, line {_line_of(key, file)}: {dotted}" if file.is_file() else dotted


def _line_of(key: Sequence[str | int], file: Path) -> int:
    """Of the nearest part that is there."""
    node, line = yaml.compose(file.read_text(encoding="utf-8"), Loader=yaml.SafeLoader), 1
    for part in key:
        pairs = node.value if isinstance(node, yaml.MappingNode) else ()
        found = next((pair for pair in pairs if pair[0].value == str(part)), None)
        if found is None:
            break
        line, node = found[0].start_mark.line + 1, found[1]
    return line


def _explain(error: ValidationError) -> Iterator[str]:
    for fault in explain_faults(error, Settings, noun="setting"):
        yield f"{find_where_set(fault.path)}: {fault.words}"


def unknown_variables(settings: type[BaseModel], keys: Collection[str | None]) -> list[str]:
    """A sentence for each, but for `keys`, to which settings point, and for what Kubernetes sets for a service of our
    name."""
    names = sorted(name for name in os.environ if name.startswith(PREFIX) and name not in keys)
    known = {"settings", *settings.model_fields}
    if os.environ.get(PREFIX + "PORT", "").startswith("tcp://"):
        names = [name for name in names if not _KUBERNETES.fullmatch(name.removeprefix(PREFIX))]
    return [
        f"{name}: unknown setting{suggest(name, [PREFIX + one.upper() for one in known])}"
        for name in names
        if name.removeprefix(PREFIX).lower().partition("__")[0] not in known
    ]


# What was a setting once. A start with one warns and goes on, since nothing depends on it any more.

_FORMER_RULE: Final = "a rule by parts counts as the level that keeps more; set `retention.keep.level`"

WITHDRAWN: Final[Mapping[str, str]] = {
    "judge_cache_entries": "`judge_cache_days` says how long judges' answers are kept",
    "judges.*.breaker_seconds": "a judge that failed is asked again after half a minute",
    "judges.*.queue_seconds": "a reading waits ten minutes for limits of its judge; `judging_seconds` bounds a group",
    "policies.*.max_concurrency": "64 replies are made at once, and servers queue by themselves",
    "rag.remote.max_bytes": "an answer has 1 MiB at most; let the retriever send fewer passages",
    "rag.remote.max_characters": "a passage has 8000 characters at most; let the retriever cut it",
    "rag.remote.max_concurrency": "64 connections are open at once; `rag.deadline_seconds` bounds the wait for one",
    "rag.remote.max_passages": "an answer has 64 passages at most; let the retriever send the best",
    "rag.remote.retries": "a query is sent twice more, as far as `rag.deadline_seconds` allows",
    "health.webhook_seconds": "an attempt may take 10 seconds, and is made again for hours",
    "parts.late_seconds": "missing samples may come for two minutes after a group was judged",
    "parts.retry_seconds": "a sample may be sent again for ten minutes",
    "retention.every_hours": "one of the replicas looks each day",
    "retention.keep.text": _FORMER_RULE,
    "retention.keep.thought": _FORMER_RULE,
    "retention.keep.tokens": _FORMER_RULE,
    "retention.keep.logprobs": _FORMER_RULE,
    "retention.keep.judge_prompts": _FORMER_RULE,
    "retention.keep.share": _FORMER_RULE,
    "retention.keep.every_hours": "one of the replicas looks each hour",
}
"""By key, in which `*` is any name: what holds in its place."""


def _find_withdrawn(given: object, path: Sequence[str]) -> Iterator[tuple[str, ...]]:
    if not isinstance(given, dict) or not path:
        return
    for name in list(given) if path[0] == "*" else [path[0]] if path[0] in given else []:
        if len(path) == 1:
            yield (name,)
        else:
            yield from ((name, *rest) for rest in _find_withdrawn(given[name], path[1:]))


def _leave_out(given: dict[str, Any], key: Sequence[str]) -> dict[str, Any]:
    """A copy, since sources keep what they gave."""
    first, *rest = key
    if rest:
        return given | {first: _leave_out(given[first], rest)}
    return {name: value for name, value in given.items() if name != first}


def _choose_level(given: object) -> object:
    """`retention.keep.level` of a former rule, which had a word for each part."""
    retention = given.get("retention") if isinstance(given, dict) else None
    keep = retention.get("keep") if isinstance(retention, dict) else None
    if not isinstance(given, dict) or not isinstance(keep, dict) or not keep.keys() & {*KEPT_PARTS}:
        return given
    return given | {"retention": {**(retention or {}), "keep": {"level": read_former_rule(keep)} | keep}}


def _list_withdrawn_variables() -> dict[str, str]:
    """Of settings that stood by themselves, which no source reads any more; their keys."""
    return {PREFIX + key.upper(): key for key in WITHDRAWN if "." not in key}


MOST_PROCESSES = 64


class Settings(Described, BaseSettings):
    """Frozen after start."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_nested_delimiter="__",
        frozen=True,
        extra="forbid",
        env_ignore_empty=True,
    )

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8000
    """Port to listen on; 0 takes a free one."""
    processes: Annotated[int, Field(ge=1, le=MOST_PROCESSES)] = 1
    """Processes that serve the same ports, so that more than one processor core is used; above 1 on PostgreSQL alone.
    See "More than one core" in `docs/operating.md`."""
    api_key: SecretStr | None = None
    """A key with every scope: Bearer token, or password of HTTP Basic. On a host other than loopback one is made when
    none is set and the store has no named ones; see `docs/keys.md`."""
    anonymous: bool = False
    """Serve without a key on any host, even when the store has named keys."""
    open_metrics: bool = False
    """Let `/metrics` be read without a key."""
    database_url: str = "sqlite:///atropos_envs.db"
    """`sqlite:///file` for one replica, `postgresql://user:password@host/database` for more."""
    database_prepared_statements: bool = True
    """Let PostgreSQL keep prepared statements in its sessions. Set it to false behind PgBouncer in transaction mode."""
    index_texts: bool = True
    """Whether the words of stored groups are indexed once somebody searches by words, flags or models. Without, such a
    search finds what was indexed before, and looks at the newest groups for flags and models."""
    max_body_bytes: Annotated[int, Field(ge=1024)] = 24 * 1024 * 1024
    """A larger request body is refused with 413, and so is one with more than one value for every 15 bytes of this.
    While a larger one is parsed, other requests wait for more than a fifth of a second."""
    request_seconds: Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)] = 60.0
    """Seconds within which the headers of a request must arrive, and then again its body. A later one is answered with
    408, and its connection is closed."""
    keep_alive_seconds: Annotated[int, Field(ge=1, le=86_400)] = 75
    """Seconds that a connection without requests is kept open. A proxy in front must close first, or it answers 502
    now and then: most keep theirs for a minute."""
    allowed_hosts: tuple[Annotated[str, AfterValidator(check_host)], ...] = ()
    """Names that the `Host` of a request may have, besides `localhost` and its addresses. By default any where the
    service has keys or listens on another address than loopback, else none."""
    allowed_origins: tuple[Annotated[str, AfterValidator(check_origin)], ...] = ()
    """Web sites whose pages may call the API, such as `https://game.example`: a game in a browser. They need a key in
    `Authorization: Bearer` where the service has keys. Nobody's sign-in is lent to them."""
    shutdown_seconds: Annotated[int, Field(ge=0, le=3600)] = 20
    """Seconds that requests under way have to be answered after SIGTERM. Raise it to the longest that a trainer's
    request is held: 175 for OpenRLHF, 115 for slime. Then a roll-out or a scale-in breaks none off."""
    workers: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Processes at most in which texts of models are parsed or run, and texts of authors are read in half of them; as
    many as there are processor cores by default. Where several processes serve, each has its part, rounded up. Each
    has at least 2, whatever is set: a text of an author takes no model's only worker."""
    programs: ProgramSettings = ProgramSettings()
    """Programs that models wrote."""
    tracing: TracingSettings = TracingSettings()
    """Traces, which are sent where `OTEL_EXPORTER_OTLP_ENDPOINT` says. See "Traces" in `docs/operating.md`."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least severe log line that is written; `debug` has a line for every request."""
    log_format: Literal["auto", "json", "console"] = "auto"
    """One JSON object a line, or lines for people; `auto` chooses the latter on a terminal."""
    cache_dir: Path | None = None
    """Where data sets are cached; the user's cache directory by default."""
    character_sheets: Path | None = None
    """Folder of character sheets for NPC Arena, one YAML file each, with the folders `scenes`, `lorebooks` and `worlds`
    that it may bring; those that ship by default."""
    datasets: dict[Name, DatasetSources] = {}
    """By environment: a hub id, a folder or a file; or several of them by name, each with its splits and columns. See
    `docs/datasets.md`."""
    ready_after_data: Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False)] = 120.0
    """Seconds that `/readyz` waits at most for configured data sets to be read, so that a roll-out does not replace
    replicas too early. Environments whose data is still being read then answer 503, each for itself alone."""
    judges: dict[Name, JudgeSettings] = {}
    """Judge models by name."""
    policies: dict[Name, PolicySettings] = {}
    """Models that people talk to, by name: at `/view/talk` and `/play/v1`. See `docs/talk.md`."""
    play: PlaySettings = PlaySettings()
    """What people are told before they talk to a character. See `docs/talk.md`."""
    judging_seconds: Annotated[float, Field(gt=0, le=86_400)] = 900.0
    """The longest that judges may take over one group, from its first question: readings, doubt, fallbacks, retries and
    waiting for limits together. What is not there by then is `unscored: judge_failed`."""
    judge_cache_days: Positive | None = None
    """A judge's answer that is older is asked for again; kept for ever by default."""
    atropos_port: Annotated[int, Field(ge=1, le=65535)] | None = None
    """A second port, with Atropos' API at its root, for clients whose address is a host and a port."""
    atropos_run: Name = "default"
    """The run that is served there. `/compat/atropos` is `default`, `/compat/atropos/<run>` every other."""
    atropos_ports: dict[Name, Annotated[int, Field(ge=1, le=65535)]] = {}
    """By run: more such ports."""
    nemo_gym_ports: dict[Name, NemoGymPort] = {}
    """Ports with a resources server of NeMo Gym's at their root, for its configuration, which names a host and a port.
    They are called as you like."""
    ors_ports: dict[Name, OrsPort] = {}
    """Ports with a server of the Open Reward Standard at their root: its clients know no path."""
    environments: dict[Name, EnvironmentSettings] = {}
    """Per environment: which judges score it, and how. With `serve`, another's environment under this name."""
    parts: PartSettings = PartSettings()
    """Groups whose completions do not come together."""
    rag: RagSettings = RagSettings()
    """What is retrieved into prompts, and from where."""
    health: HealthSettings = HealthSettings()
    """Who is told when the health of a run changes."""
    retention: RetentionSettings = RetentionSettings()
    """How long what is stored is kept; for ever by default."""
    sign_in: SignInSettings = SignInSettings()
    """How people sign in with a browser."""
    compat: CompatSettings = CompatSettings()
    """Doors for other trainers."""

    _withdrawn: tuple[str, ...] = PrivateAttr(())

    @model_validator(mode="wrap")
    @classmethod
    def _leave_out_withdrawn(cls, given: Any, build: ModelWrapValidatorHandler[Self]) -> Self:
        said = [f"{name}: {WITHDRAWN[key]}" for name, key in _list_withdrawn_variables().items() if name in os.environ]
        given = _choose_level(given)
        for pattern, instead in WITHDRAWN.items():
            for key in list(_find_withdrawn(given, pattern.split("."))):
                said.append(f"{find_where_set(key)}: {instead}")
                given = _leave_out(given, key)
        settings = build(given)
        settings._withdrawn = tuple(dict.fromkeys(said))
        return settings

    @property
    def withdrawn(self) -> tuple[str, ...]:
        """A sentence for each setting that was given and does nothing any more: where it stands, and what holds
        instead."""
        return self._withdrawn

    @model_validator(mode="after")
    def _check_ports(self) -> Self:
        ports = [self.port, *self.atropos_ports.values(), *([self.atropos_port] if self.atropos_port else [])]
        ports += [one.port for one in (*self.nemo_gym_ports.values(), *self.ors_ports.values())]
        if len(set(ports)) < len(ports):
            raise ValueError("port, atropos_port, atropos_ports, nemo_gym_ports and ors_ports must all differ")
        return self

    @property
    def atropos_listeners(self) -> dict[int, str]:
        """Runs by the port that serves them at its root."""
        first = {} if self.atropos_port is None else {self.atropos_port: self.atropos_run}
        return first | {port: run for run, port in self.atropos_ports.items()}

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        if isinstance(env_settings, EnvSettingsSource):  # Kubernetes sets `…_PORT=tcp://…` for a service of our name
            given = env_settings.env_vars.items()
            env_settings.env_vars = {name: value for name, value in given if not (value or "").startswith("tcp://")}
        return init_settings, env_settings, YamlConfigSettingsSource(settings_cls, yaml_file=settings_file())

    def read_secret(self, variable: str) -> SecretStr | None:
        """The value of a variable that the settings name, such as `judges.*.api_key_env`; None when it is not set."""
        value = os.environ.get(variable)
        return None if not value else SecretStr(value)

    @property
    def wants_traces(self) -> bool:
        """Whether OpenTelemetry's own variables name a collector; its SDK reads the others itself."""
        off = os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
        off = off or os.environ.get("OTEL_TRACES_EXPORTER", "").strip().lower() == "none"
        named = (os.environ.get(name) for name in ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"))
        return any(named) and not off


def share_metrics(folder: Path) -> None:
    """Tells prometheus_client in the processes that are started from this one to keep its figures in the folder."""
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(folder)


def read_settings() -> Settings:
    """SettingsError when the file that ATROPOS_ENVS_SETTINGS names is not there, the file is no YAML, or a setting is
    unknown or has a wrong value."""
    named = os.environ.get(PREFIX + "SETTINGS")
    if named and not Path(named).is_file():
        raise SettingsError(f"{PREFIX}SETTINGS names {named}, which is not a file")
    settings = _read_sources()
    servers: list[ServerSettings] = [*settings.judges.values(), *settings.policies.values()]
    keys = {server.api_key_env for server in servers} | {
        *(environment.api_key_env for environment in settings.environments.values()),
        settings.rag.remote.api_key_env,
        settings.health.webhook_secret_env,
        *_list_withdrawn_variables(),
    }
    unknown = unknown_variables(Settings, keys)
    if unknown:
        raise SettingsError("\n".join(unknown))
    return settings


def _read_sources() -> Settings:
    try:
        return Settings()
    except ValidationError as error:
        raise SettingsError("\n".join(_explain(error))) from None
    except yaml.YAMLError as error:
        number = find_yaml_line(error)
        line = "" if number is None else f", line {number}"
        raise SettingsError(f"{settings_file()}{line}: not YAML: {explain_yaml_error(error)}") from None
    except OSError as error:
        raise SettingsError(f"{settings_file()}: {explain_os_error(error)}") from None
    except UnreadableSource as error:
        field = re.search(r'for field "(\w+)"', str(error))
        where = f"{PREFIX}{field[1].upper()}" if field else f"a variable {PREFIX}*"
        raise SettingsError(f"{where}: not JSON; wanted is an object or a list in JSON") from None
    except UnicodeDecodeError:
        raise SettingsError(f"{settings_file()}: not UTF-8 text") from None
    except (ValueError, TypeError):  # of the source, which makes a dictionary of whatever the file holds
        raise SettingsError(f"{settings_file()}: wanted are names of settings with their values") from None
