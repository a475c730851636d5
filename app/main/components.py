"""What the service is put together from, as the settings name it: environments, judges, a retriever, keys, characters.

Environments and retrievers are discovered in folders and behind entry points, so that a package that is installed adds
its own. Everything else is built from the settings. A mistake in the settings stops a start before anything is opened:
`require_known_names` looks for all of them and says them together, each with the place where it was set."""

import asyncio
import importlib
import importlib.util
import logging
import pkgutil
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import entry_points
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Final, get_args

from pydantic import SecretStr, ValidationError
from pydantic_core import from_json

import app.envs
import app.envs.community
from app.characters.authored_texts import choose_scene
from app.characters.loading import list_yaml_files, read_own_scenes, read_scenes
from app.characters.scenes import Scene
from app.characters.schema import CharacterCard, CharacterSheet, build_character_cards
from app.characters.sheet_checks import (
    SheetFinding,
    SheetSurroundings,
    build_check_context,
    build_source,
    build_surroundings,
    check_sources,
    read_source,
)
from app.domain.access import compute_key_digest, generate_key, name_narrowed
from app.domain.authored_files import SCENE_FILES, ListedDraft
from app.domain.budgets import BudgetConfig
from app.domain.errors import EnvironmentUnavailable, InvalidRequest, UserError
from app.domain.faults import explain_faults, explain_os_error
from app.domain.runs import ScoringOptions
from app.domain.tasks import Message
from app.domain.values import Split, suggest
from app.envs.foreign.contract import ForeignOptions, ForeignServer, build_environment
from app.envs.foreign.nemo_gym import NemoGymOptions, NemoGymServer
from app.envs.foreign.openenv import OpenEnvOptions, OpenEnvServer
from app.envs.foreign.verifiers import VerifiersOptions, VerifiersServer
from app.envs.npc_arena.environment import PACKAGED_SCENES, NpcArena, NpcArenaDraft
from app.http.viewer.character_pages import PORTRAITS, CharacterPages
from app.http.viewer.rendering import ViewerParts
from app.http.web.api_keys import KeyRing
from app.http.web.middleware import is_loopback
from app.inference.connection import KeyFile, clean_key
from app.inference.tokens import ChatTemplate
from app.judges.chat_judge import ChatPlayer
from app.judges.configuration import ChatJudgeConfig, TokenPrices
from app.judges.gates import GATES
from app.judges.offline import NAME as OFFLINE
from app.judges.panel import ConfiguredPanels, build_chat_judges, build_reward_judges
from app.judges.prompts import load_rubric
from app.judges.reward_models import RewardModelConfig
from app.main.store import Store
from app.ports.children import Children
from app.ports.environment import Environment, Workers
from app.ports.judges import JudgeCache, ReadingPace
from app.ports.players import PlayerModel
from app.ports.retrieval import NoRetriever, Retriever
from app.ports.tracing import Tracer
from app.rag.remote import RemoteRetriever, RemoteRetrieverConfig
from app.sandbox.children import JailedChildren
from app.service.catalogue import Catalogue
from app.settings import (
    PREFIX,
    EnvironmentSettings,
    JudgeSettings,
    PlayerSettings,
    PolicySettings,
    ServerSettings,
    Settings,
    SettingsError,
    find_where_set,
)
from app.store.database import parse_url
from app.store.views import GroupViews
from app.toolkit.templates import find_packaged_folder
from app.toolkit.texts import run_in_turn

# Discovery: what lies in a folder or behind an entry point, by name.

_WORLDS = "worlds"
"""The default retriever, which a feature brings."""
_RETRIEVER_GROUP = "atropos_environments.retrievers"
"""Of entry points."""
ENVIRONMENT_MODULE = "environment"
"""In the folder of an environment, the module that holds its class."""


def discover() -> dict[str, type[Environment]]:
    """Every environment in `app.envs`, `app.envs.community` and the entry-point group, by name: a folder with a module
    `environment`, or a single file."""
    modules = [*_import_modules(app.envs), *_import_modules(app.envs.community)]
    classes = [environment for module in modules for environment in _find_environments(module)]
    classes += [point.load() for point in entry_points(group="atropos_environments.envs")]
    named: dict[str, type[Environment]] = {}
    for environment in classes:
        if environment.name in named:
            raise UserError(f"two environments are called {environment.name!r}")
        named[environment.name] = environment
    return named


def load_environment(file: Path) -> type[Environment]:
    """The one environment of a Python file, wherever it lies. FileNotFoundError without the file; UserError when it
    holds none or several, or breaks while it is read."""
    try:
        module = _import_file(file.resolve(strict=True))
    except FileNotFoundError:
        raise
    except Exception as error:  # another's code may raise whatever it likes
        raise UserError(f"{file} cannot be read: {type(error).__name__}: {error}") from error
    classes = _find_environments(module)
    if len(classes) != 1:
        names = ", ".join(one.__name__ for one in classes) or "none"
        raise UserError(f"{file} should hold one environment, a class that inherits from Environment; it has {names}")
    if not isinstance(getattr(classes[0], "name", None), str):
        raise UserError(f"{file}: {classes[0].__name__} has no name: set `name`, the word by which it is asked for")
    return classes[0]


def _load_retriever(name: str) -> Retriever:
    """Made by the entry point of that name in `atropos_environments.retrievers`, which is called without arguments.
    UserError when there is none, or nothing comes of it."""
    points = {point.name: point for point in entry_points(group=_RETRIEVER_GROUP)}
    if name not in points:
        listed = ", ".join(sorted(points)) or "none"
        raise UserError(f"rag.retriever is {name!r}: no installed package brings it (brought: {listed})")
    try:
        retriever: Retriever = points[name].load()()
    except Exception as error:  # another's code may raise whatever it likes
        raise UserError(f"rag.retriever is {name!r}, which broke: {type(error).__name__}: {error}") from error
    if not callable(getattr(retriever, "retrieve", None)):
        raise UserError(f"rag.retriever is {name!r}, which is no retriever: it has no method retrieve")
    return retriever


def _import_file(file: Path) -> ModuleType:
    """Imported by the name that it has in its package, where workers find its functions; else by a name of its own."""
    packages = [file.stem] if file.stem != "__init__" else []
    folder = file.parent
    while (folder / "__init__.py").is_file():
        packages.insert(0, folder.name)
        folder = folder.parent
    name = ".".join(packages)
    if (len(packages) > 1 or file.stem == "__init__") and _find_origin(name) == file:
        return importlib.import_module(name)
    own = file.parent.name if file.stem == ENVIRONMENT_MODULE else packages[-1]
    spec = importlib.util.spec_from_file_location(f"environment_of_{own}", file)
    if spec is None or spec.loader is None:
        raise UserError("it is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # before it runs: pydantic and dataclasses look a class's module up there
    spec.loader.exec_module(module)
    return module


def _find_origin(name: str) -> Path | None:
    """The file that Python would import by that name."""
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError:  # of the package that it would be in
        return None
    return Path(spec.origin) if spec is not None and spec.origin is not None else None


def _import_modules(package: ModuleType) -> list[ModuleType]:
    infos = pkgutil.iter_modules(package.__path__, package.__name__ + ".")
    names = [f"{info.name}.{ENVIRONMENT_MODULE}" if info.ispkg else info.name for info in infos]
    return [importlib.import_module(name) for name in names if importlib.util.find_spec(name) is not None]


def _find_environments(module: ModuleType) -> list[type[Environment]]:
    return [
        value
        for value in vars(module).values()
        # Classes that a module imported to inherit from are not its own.
        if isinstance(value, type) and Environment in value.__mro__[1:] and value.__module__ == module.__name__
    ]


# Environments that run on others' servers.


def build_foreign_servers(settings: Settings, children: Children) -> dict[str, ForeignServer]:
    """By the name that each is served under. UserError for a key that cannot be had."""
    return {
        name: build_foreign_server(settings, name, chosen, children)
        for name, chosen in settings.environments.items()
        if chosen.serve is not None
    }


def build_foreign_server(
    settings: Settings, name: str, chosen: EnvironmentSettings, children: Children
) -> ForeignServer:
    key = None if chosen.api_key_env is None else settings.read_secret(chosen.api_key_env)
    if chosen.api_key_env is not None and key is None:
        raise UserError(f"environments.{name}.api_key_env names {chosen.api_key_env}, which is not set")
    options = ForeignOptions(
        max_turns=chosen.max_turns,
        sessions=chosen.sessions,
        deadline_seconds=chosen.deadline_seconds,
        idle_seconds=chosen.idle_seconds,
        reward_range=chosen.reward_range,
        replay=chosen.replay,
    )
    return _FOREIGN_KINDS[chosen.serve or ""](_Configured(name, chosen, options, key, children))


@dataclass(frozen=True)
class _Configured:
    """What a kind of foreign server is made of."""

    name: str
    settings: EnvironmentSettings
    options: ForeignOptions
    key: SecretStr | None
    children: Children


def _build_openenv(given: _Configured) -> ForeignServer:
    chosen = given.settings
    acting = OpenEnvOptions(
        chosen.action_field,
        chosen.observation_field,
        chosen.final_tool,
        chosen.reset,
        chosen.instructions,
        chosen.hand_back_errors,
    )
    return OpenEnvServer(given.name, chosen.url, given.options, acting, given.key)


def _build_nemo_gym(given: _Configured) -> ForeignServer:
    chosen = given.settings
    rows = NemoGymOptions(chosen.rows or Path(), chosen.test_rows)
    return NemoGymServer(given.name, chosen.url, given.options, rows, given.key)


def _build_verifiers(given: _Configured) -> ForeignServer:
    chosen = given.settings
    own = VerifiersOptions(
        args=chosen.args,
        folders=chosen.folders,
        variables=chosen.variables,
        tasks=chosen.tasks,
        test=chosen.test,
        trusted=chosen.trusted,
        memory_mb=chosen.memory_mb,
    )
    return VerifiersServer(given.name, chosen.package, chosen.python or Path(), given.options, own, given.children)


_FOREIGN_KINDS: Final[Mapping[str, Callable[[_Configured], ForeignServer]]] = MappingProxyType(
    {
        "openenv": _build_openenv,
        "nemo_gym": _build_nemo_gym,
        "verifiers": _build_verifiers,
    }
)
"""To take a kind away: its file, its function and line here, its lines of `app.settings.sections`, its command of
`app.cli.envs.adding`."""


def create_children(settings: Settings) -> Children:
    """Those that foreign environments run in."""

    def read_variable(name: str) -> str | None:
        value = settings.read_secret(name)
        return None if value is None else value.get_secret_value()

    return JailedChildren(read_variable)


def add_foreign(
    classes: Mapping[str, type[Environment]], servers: Mapping[str, ForeignServer]
) -> dict[str, type[Environment]]:
    return {**classes, **{name: build_environment(server) for name, server in servers.items()}}


# Judges, the tracer, the retriever and keys.

log = logging.getLogger(__name__)


def read_server_key(settings: Settings, where: str, server: ServerSettings) -> SecretStr | KeyFile | None:
    """UserError naming the setting below `where` for a key that cannot be had, and for a route of Azure that does not
    exist."""
    if server.api_version is not None and server.base_url.rstrip("/").endswith("/openai/v1"):
        raise UserError(f"{where}.api_version must not be set where base_url ends in /openai/v1")
    if server.api_key_env is not None and server.api_key_file is not None:
        raise UserError(f"{where} has both api_key_env and api_key_file")
    if server.api_key_file is not None:
        try:
            return KeyFile(server.api_key_file)
        except OSError as error:
            words = explain_os_error(error)
        except ValueError as error:
            words = "it holds no text" if isinstance(error, UnicodeError) else f"it {error}"
        raise UserError(f"{where}.api_key_file names {server.api_key_file}, which cannot be used: {words}")
    if server.api_key_env is None:
        return None
    key = settings.read_secret(server.api_key_env)
    if key is None:
        raise UserError(f"{where}.api_key_env names {server.api_key_env}, which is not set")
    try:
        return clean_key(key)
    except UserError as error:
        raise UserError(f"{where}.api_key_env names {server.api_key_env}, which {error}") from None


def build_judge_config(settings: Settings, name: str, judge: JudgeSettings) -> ChatJudgeConfig:
    """UserError for a key that cannot be had, a route of Azure that does not exist, and a budget without prices."""
    key = read_server_key(settings, f"judges.{name}", judge)
    prices = TokenPrices(
        judge.input_price_per_million, judge.output_price_per_million, judge.cached_input_price_per_million
    )
    if not prices.are_known and (judge.budget_usd is not None or judge.budget_usd_per_day is not None):
        raise UserError(f"judges.{name} has a budget in US dollars and no prices")
    return ChatJudgeConfig(
        name=name,
        base_url=judge.base_url,
        model=judge.model,
        api_key=key,
        extra_headers=judge.extra_headers,
        api_version=judge.api_version,
        deadline_seconds=judge.deadline_seconds,
        temperature=judge.temperature,
        seed=judge.seed,
        extra_body=judge.extra_body,
        max_output_tokens=judge.max_output_tokens,
        token_parameter=judge.token_parameter,
        json_mode=judge.json_mode,
        expected_scores=judge.expected_scores,
        prices=prices,
        pace=ReadingPace(judge.largest_group, judge.warm_cache),
        max_concurrency=judge.max_concurrency,
        requests_per_minute=judge.requests_per_minute,
        tokens_per_minute=judge.tokens_per_minute,
        budget=BudgetConfig(judge.budget_usd, judge.budget_usd_per_day, judge.budget_tokens),
        breaker_failures=judge.breaker_failures,
    )


def _build_any_config(settings: Settings, name: str, judge: JudgeSettings) -> ChatJudgeConfig | RewardModelConfig:
    """UserError as for a chat judge, and for a chat template that cannot be read."""
    server = build_judge_config(settings, name, judge)
    if judge.kind == "chat" or judge.route is None:
        return server
    try:
        template = ChatTemplate.read(judge.chat_template) if isinstance(judge.chat_template, Path) else None
    except (ValueError, OSError) as error:
        raise UserError(f"judges.{name}.chat_template: {error}") from None
    return RewardModelConfig(
        replace(server, max_output_tokens=0), judge.route, template, judge.reward_center, judge.reward_scale
    )


def build_panels(settings: Settings, memory: JudgeCache | None = None) -> ConfiguredPanels:
    """The configured judges over the environments that name them; UserError for a name that no judge has, and for a
    rubric that cannot be used."""
    configs = [_build_any_config(settings, name, judge) for name, judge in settings.judges.items()]
    fallbacks = {name: judge.fallback for name, judge in settings.judges.items() if judge.fallback is not None}
    chatting = build_chat_judges([one for one in configs if isinstance(one, ChatJudgeConfig)], fallbacks, memory)
    rewarding = build_reward_judges([one for one in configs if isinstance(one, RewardModelConfig)], memory)
    return ConfiguredPanels(
        {**chatting, **rewarding},
        {name: _build_options(environment) for name, environment in settings.environments.items()},
        self_judging=[name for name, judge in settings.judges.items() if judge.allow_self_judge],
        judging_seconds=settings.judging_seconds,
    )


def build_players(settings: Settings, memory: JudgeCache) -> dict[str, PlayerModel]:
    """By policy. UserError as for a judge."""
    return {
        name: ChatPlayer(
            _build_player_config(settings, name, policy, policy.as_player),
            memory,
            may_be_judge=policy.as_player.allow_judge,
        )
        for name, policy in settings.policies.items()
        if policy.as_player is not None
    }


def _build_player_config(
    settings: Settings, name: str, policy: PolicySettings, player: PlayerSettings
) -> ChatJudgeConfig:
    where = f"policies.{name}"
    prices = TokenPrices(player.input_price_per_million, player.output_price_per_million)
    if not prices.are_known and (player.budget_usd is not None or player.budget_usd_per_day is not None):
        raise UserError(f"{where}.as_player has a budget in US dollars and no prices")
    return ChatJudgeConfig(
        name=f"player:{name}",  # no judge can be called so
        role="player",
        base_url=policy.base_url,
        model=policy.model,
        api_key=read_server_key(settings, where, policy),
        extra_headers=policy.extra_headers,
        api_version=policy.api_version,
        deadline_seconds=player.deadline_seconds,
        temperature=player.temperature,
        seed=player.seed,
        extra_body=policy.extra_body,
        max_output_tokens=player.max_output_tokens,
        prices=prices,
        max_concurrency=player.max_concurrency,
        budget=BudgetConfig(player.budget_usd, player.budget_usd_per_day, player.budget_tokens),
    )


def _build_options(environment: EnvironmentSettings) -> ScoringOptions:
    """With the rubric of its file. UserError with file, line and key of the first error in it."""
    if environment.rubric is None:
        return environment.options
    return environment.options.model_copy(update={"rubric": load_rubric(environment.rubric)})


def build_tracer(settings: Settings, version: str) -> Tracer | None:
    """Imported here alone: the SDK takes a fifth of a second, and most services have no collector."""
    if not settings.wants_traces:
        return None
    try:
        build = importlib.import_module("app.telemetry.open_telemetry").OpenTelemetryTracer
    except ModuleNotFoundError as error:
        log.warning("no traces are sent, since %s is not installed: it is of the extra `tracing`", error.name)
        return None
    tracer: Tracer = build(version, sends_traceparent=settings.tracing.send_traceparent)
    return tracer


def build_retriever(settings: Settings, brought: Mapping[str, Callable[[], Retriever]]) -> Retriever:
    """The one that the settings choose, of those that features brought or of others. UserError for one that is not
    there, and for a URL that must not be asked."""
    if settings.rag.retriever in brought:
        return brought[settings.rag.retriever]()
    if settings.rag.retriever == _WORLDS:
        return NoRetriever()
    if settings.rag.retriever != "remote":
        return _load_retriever(settings.rag.retriever)
    return RemoteRetriever(_build_remote_config(settings))


def _build_remote_config(settings: Settings) -> RemoteRetrieverConfig:
    remote = settings.rag.remote
    key = None if remote.api_key_env is None else settings.read_secret(remote.api_key_env)
    if remote.api_key_env is not None and key is None:
        raise UserError(f"rag.remote.api_key_env names {remote.api_key_env}, which is not set")
    return RemoteRetrieverConfig(
        url=remote.url,
        api_key=key,
        deadline_seconds=settings.rag.deadline_seconds,
        allow_hosts=remote.allow_hosts,
        allow_private=remote.allow_private,
    )


def create_key_ring(settings: Settings, store: Store, announce: Callable[[str], None]) -> KeyRing:
    """Who may call. Named keys are in the store. On a host other than loopback there is a key unless the settings say
    `anonymous`; one that was made here is announced once, then only its digest is known."""
    keys = store.keys.load_blocking()
    if sentence := name_narrowed(keys.named):
        log.warning("%s", sentence)
    if "play" in settings.sign_in.proxy_scopes and "talk" not in settings.sign_in.proxy_scopes:
        log.warning("sign_in.proxy_scopes has `play`, which writes events: people talk to characters with `talk`")
    if settings.api_key is not None:
        digests = (compute_key_digest(settings.api_key.get_secret_value()),)
        return KeyRing(digests, False, store.keys, known=keys)
    if settings.anonymous:
        return KeyRing([], anonymous=True)
    if is_loopback(settings.host):
        return KeyRing([], True, store.keys, known=keys)
    if not keys.generated and not keys.named:
        key = generate_key()
        store.keys.add(compute_key_digest(key))
        announce(key)
        keys = replace(keys, generated=(compute_key_digest(key),))
    return KeyRing(keys.generated, False, store.keys, known=keys, owner="generated")


# Mistakes in the settings alone.


def require_known_names(settings: Settings, environments: Mapping[str, type[Environment]]) -> None:
    """SettingsError naming each environment, data set and judge that is not there, each judge and rubric that cannot
    be, and a database URL that is none. `environments` are ours."""
    mistakes = [
        *_find_taken_names(settings, environments),
        *_find_unknown_environments(settings, environments),
        *_find_unknown_judges(settings),
        *_find_broken_judges(settings),
        *_find_broken_database_url(settings),
        *_find_processes_without_server(settings),
        *_find_broken_rubrics(settings, environments),
    ]
    if mistakes:
        raise SettingsError("\n".join(mistakes))


def list_named_environments(settings: Settings) -> frozenset[str]:
    return frozenset(name for _, name in _find_named_environments(settings))


def _find_named_environments(settings: Settings) -> list[tuple[tuple[str, ...], str]]:
    """The environments that the settings name, each with where."""
    return [
        *((("environments", name), name) for name in settings.environments),
        *((("datasets", name), name) for name in settings.datasets),
        *((("nemo_gym_ports", name, "environment"), one.environment) for name, one in settings.nemo_gym_ports.items()),
        *((("ors_ports", name, "environment"), one.environment) for name, one in settings.ors_ports.items()),
    ]


def _find_taken_names(settings: Settings, environments: Mapping[str, type[Environment]]) -> list[str]:
    return [
        f"{find_where_set(('environments', name))}: it has `serve`, and an environment of ours is called so: "
        "choose another name"
        for name, chosen in settings.environments.items()
        if chosen.serve is not None and name in environments
    ]


def _find_unknown_environments(settings: Settings, environments: Mapping[str, type[Environment]]) -> list[str]:
    served = {name for name, chosen in settings.environments.items() if chosen.serve is not None}
    known = {*environments, *served}
    return [
        f"{find_where_set(key)}: there is no environment {name!r}{suggest(name, known)}"
        for key, name in _find_named_environments(settings)
        if name not in known
    ]


def _find_unknown_judges(settings: Settings) -> list[str]:
    named = [
        (("environments", environment, "judges"), name)
        for environment, options in settings.environments.items()
        for name in options.judges
    ]
    named += [
        (("judges", name, "fallback"), judge.fallback)
        for name, judge in settings.judges.items()
        if judge.fallback is not None
    ]
    judges = {OFFLINE, *settings.judges}
    return [
        f"{find_where_set(key)}: there is no judge {name!r}{suggest(name, judges)}"
        for key, name in named
        if name not in judges
    ]


def _find_broken_judges(settings: Settings) -> list[str]:
    mistakes = []
    for name, judge in settings.judges.items():
        try:
            _build_any_config(settings, name, judge)
        except UserError as error:
            mistakes.append(f"{find_where_set(('judges', name))}: {error}")
    return mistakes


def _find_broken_database_url(settings: Settings) -> list[str]:
    try:
        parse_url(settings.database_url)
    except UserError as error:
        return [f"{find_where_set(('database_url',))}: {error}"]
    return []


def _find_processes_without_server(settings: Settings) -> list[str]:
    if settings.processes == 1 or not settings.database_url.startswith("sqlite"):
        return []
    return [
        f"{settings.processes} processes cannot share an SQLite file: set {PREFIX}DATABASE_URL to "
        "postgresql://user:password@host/database, or serve with one process"
    ]


def _find_broken_rubrics(settings: Settings, environments: Mapping[str, type[Environment]]) -> list[str]:
    mistakes = []
    for name, environment in settings.environments.items():
        if environment.rubric is None or name not in environments:
            continue
        where = find_where_set(("environments", name, "rubric"))
        if not environments[name].takes_rubric:
            takers = ", ".join(sorted(one for one, kind in environments.items() if kind.takes_rubric))
            mistakes.append(f"{where}: {name} takes no rubric from the settings; these do: {takers or 'none'}")
            continue
        try:
            _build_options(environment)
        except UserError as error:
            mistakes.append(f"{where}: {error}")
    return mistakes


# The characters that are served.

_Stamps = tuple[Mapping[Path, int], Mapping[str, str]]


@dataclass
class ServedCharacters:
    """The characters of NPC Arena as pages, listings and authors see them; none while it is not served.

    It reads them from the environment that the catalogue has open, so that after a reload everybody sees the same. The
    folder's files are theirs unless an author's text stands in a file's place. The kernel knows no authors: their
    feature says afterwards, by `replace_texts` and `replace_reload`, which texts those are and how they are read again.
    """

    catalogue: Catalogue
    views: GroupViews
    settings: Settings
    workers: Workers
    """Those that read texts of authors."""
    refresh_examples: Callable[[], Awaitable[None]]
    """To be awaited after other characters are served."""
    _surroundings: tuple[NpcArena | None, SheetSurroundings] | None = None
    """With the characters that it was made of."""
    _list_written: Callable[[], Mapping[str, str]] = dict
    """What stands in place of the folder's files."""
    _reload: Callable[[], Awaitable[None]] | None = None
    _list_drafts: Callable[[], Awaitable[Sequence[ListedDraft]]] | None = None
    _checked: tuple[_Stamps, Sequence[SheetFinding]] = field(default_factory=lambda: (({}, {}), ()))

    @property
    def folder(self) -> Path:
        return self.settings.character_sheets or find_packaged_folder("character_sheets")

    def list_texts(self) -> Mapping[str, str]:
        """By file. This method stays the same when `replace_texts` is called after somebody took it."""
        return self._list_written()

    def replace_texts(self, list_written: Callable[[], Mapping[str, str]]) -> None:
        """These texts are from now on part of what is checked."""
        self._list_written = list_written

    def replace_reload(self, reload: Callable[[], Awaitable[None]]) -> None:
        self._reload = reload

    def replace_drafts(self, list_drafts: Callable[[], Awaitable[Sequence[ListedDraft]]]) -> None:
        self._list_drafts = list_drafts

    async def list_drafts(self) -> Sequence[ListedDraft]:
        """Of the caller."""
        return () if self._list_drafts is None else await self._list_drafts()

    async def reload(self) -> None:
        """Reads edited sheets again. InvalidRequest when they cannot be used; the former ones then stay in use."""
        if self._reload is None:
            await asyncio.to_thread(self.catalogue.reopen, NpcArena.name)
            await self.refresh_examples()
        else:
            await self._reload()

    def build_pages(self, parts: ViewerParts) -> CharacterPages:
        return CharacterPages(
            NpcArena.name,
            self.list_sheets,
            self.list_scenes,
            self.list_drafts,
            self.check,
            self.views,
            parts,
            self.list_portraits,
        )

    def list_portraits(self) -> dict[str, Path]:
        """Pictures in the folder `portraits` beside the sheets, by character. No link leads out of it."""
        folder = self.folder / "portraits"
        pictures = sorted(folder.iterdir()) if folder.is_dir() else []
        inside = folder.resolve()
        return {
            path.stem: path
            for path in pictures
            if path.suffix in PORTRAITS and path.is_file() and path.resolve().is_relative_to(inside)
        }

    def list_cards(self) -> tuple[CharacterCard, ...]:
        return build_character_cards(self.list_sheets())

    def list_names(self) -> dict[str, str]:
        """By id. Cards would digest every sheet, which takes longer than the rest of a reply's way."""
        return {sheet.id: sheet.identity.name for sheet in self.list_sheets()}

    def list_sheets(self) -> tuple[CharacterSheet, ...]:
        arena = self._find_arena()
        return () if arena is None else arena.sheets

    def list_homes(self) -> dict[str, tuple[str, ...]]:
        """Worlds in which each character is at home, the nearest first."""
        arena = self._find_arena()
        return {} if arena is None else {sheet.id: arena.list_worlds(sheet) for sheet in arena.sheets}

    def list_scenes(self, character: str) -> tuple[Scene, ...]:
        """Those of both splits in which it is asked, as its tasks come without params."""
        arena = self._find_arena()
        splits: tuple[Split, ...] = () if arena is None else get_args(Split)
        casts = [
            cast for split in splits if arena for cast in arena.roster.list_casts(split, "both", "all", "with", None)
        ]
        return tuple(cast.scene for cast in casts if cast.sheet.id == character)

    def build_surroundings(self) -> SheetSurroundings:
        """What a sheet is checked beside."""
        arena = self._find_arena()
        if self._surroundings is None or self._surroundings[0] is not arena:
            own, sheets = ((), ()) if arena is None else (arena.own_scene_sets, arena.sheets)
            shipped = read_scenes(PACKAGED_SCENES) if arena is None else arena.shipped_scene_sets
            gates = (gate.flag for gate in GATES)
            self._surroundings = arena, build_surroundings(own, gates, sheets, shipped)
        return self._surroundings[1]

    async def build_prompt(self, file: str, text: str, scene: str | None) -> tuple[Message, ...]:
        """The prompt of a sheet or of scenes that are being written, which are read in workers. InvalidRequest naming
        what is wrong."""
        arena, character = self._find_arena(), Path(file).stem
        if arena is None:
            raise EnvironmentUnavailable("the characters are not served")
        try:
            draft = await self._build_draft(file, text, scene, character)
        except ValidationError as error:
            raise InvalidRequest(explain_faults(error, NpcArenaDraft)[0].sentence, field="text") from None
        read = await arena.read_draft(draft, self.workers)
        return (await run_in_turn("authors", arena.draft, read)).task.messages

    async def _build_draft(self, file: str, text: str, scene: str | None, character: str) -> NpcArenaDraft:
        if file.startswith(SCENE_FILES):
            chosen = await choose_scene(self.workers, file, text, scene)
            return NpcArenaDraft(character=chosen.character or character, scene=from_json(chosen.scene))
        scenes = self.list_scenes(character)
        name = scene or (scenes[0].id if scenes else None)
        return NpcArenaDraft(sheet=text, scene=name, line=None if name else "Who are you?")

    async def check(self) -> Sequence[SheetFinding]:
        """What `atropos-envs sheets check` says of what is in force, again once that has changed. GatewayError,
        OSError."""
        return await asyncio.to_thread(self._check)

    def _check(self) -> Sequence[SheetFinding]:
        folder, written = self.folder, self._list_written()
        files = {file.name: file for file in list_yaml_files(folder)}
        stamps = {file: file.stat().st_mtime_ns for file in files.values()}
        checked, findings = self._checked
        if checked == (stamps, written):  # a page asks each time, and a check reads every file
            return findings
        files |= {name: folder / name for name in written if "/" not in name}
        sources = [
            build_source(files[name], written[name]) if name in written else read_source(files[name])
            for name in sorted(files)
        ]
        own = read_own_scenes(folder, written)
        context = build_check_context(own, (gate.flag for gate in GATES), shipped=read_scenes(PACKAGED_SCENES))
        findings = check_sources(sources, context).findings
        self._checked = ((stamps, written), findings)
        return findings

    def _find_arena(self) -> NpcArena | None:
        catalogue = self.catalogue
        if catalogue.explain_unavailability(NpcArena.name) is not None:
            return None
        arena = catalogue.get_environment_or_current(NpcArena.name).environment
        return arena if isinstance(arena, NpcArena) else None
