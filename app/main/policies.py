"""Servers of models that the settings name: their keys, and the policies that people talk to."""

from pydantic import SecretStr

from app.characters.scenes import Scene
from app.domain.errors import Conflict
from app.http.viewer.talk_pages import TalkPages
from app.inference.connection import Connection
from app.inference.credentials import Credentials, KeyFile, clean_key
from app.inference.endpoint import Endpoint
from app.inference.policy_server import ChatPolicyServer
from app.judges.panel import JudgePanel
from app.main.served_characters import ServedCharacters
from app.ports.playing import PlayStore
from app.ports.runtime import Clock
from app.service.authoring import AuthoringService
from app.service.gateway import Gateway
from app.service.play.kept_scenes import keep_scene
from app.service.play.play_service import PlayService
from app.service.play.play_turns import PlayTurns
from app.settings import PolicySettings, ServerSettings, Settings


def read_server_key(settings: Settings, where: str, server: ServerSettings) -> SecretStr | KeyFile | None:
    """ValueError naming the setting below `where` for a key that cannot be had, and for a route of Azure that does not
    exist."""
    if server.api_version is not None and server.base_url.rstrip("/").endswith("/openai/v1"):
        raise ValueError(f"{where}.api_version must not be set where base_url ends in /openai/v1")
    if server.api_key_env is not None and server.api_key_file is not None:
        raise ValueError(f"{where} has both api_key_env and api_key_file")
    if server.api_key_file is not None:
        try:
            return KeyFile(server.api_key_file)
        except OSError as error:
            words = error.strerror or type(error).__name__
        except ValueError as error:
            words = "it holds no text" if isinstance(error, UnicodeError) else f"it {error}"
        raise ValueError(f"{where}.api_key_file names {server.api_key_file}, which cannot be used: {words}")
    if server.api_key_env is None:
        return None
    key = settings.read_secret(server.api_key_env)
    if key is None:
        raise ValueError(f"{where}.api_key_env names {server.api_key_env}, which is not set")
    try:
        return clean_key(key)
    except ValueError as error:
        raise ValueError(f"{where}.api_key_env names {server.api_key_env}, which {error}") from None


def build_play(
    settings: Settings,
    gateway: Gateway,
    store: PlayStore,
    served: ServedCharacters,
    authoring: AuthoringService,
    clock: Clock,
) -> TalkPages:
    """What people need who talk to characters. Scenes that they keep are written as authors' are."""
    playing = PlayService(
        policies=build_policies(settings),
        worlds=gateway.worlds,
        list_names=served.list_names,
        gates=JudgePanel((), 0.0),  # without judges it runs the gates alone
        clock=clock,
    )

    async def keep(character: str, scene: Scene, author: str) -> None:
        sheet = next((sheet for sheet in served.list_sheets() if sheet.id == character), None)
        if sheet is None:
            raise Conflict(f"{character} is not served any more")
        await keep_scene(authoring, sheet, scene, author)

    turns = PlayTurns(
        store=store,
        playing=playing,
        labels=gateway.labelling,
        panels=gateway.panels,
        keep_scene=keep,
        clock=clock,
        keep_days=settings.retention.play_days,
    )
    return TalkPages(playing, turns, gateway.worlds)


def build_policies(settings: Settings) -> dict[str, ChatPolicyServer]:
    """By name. ValueError for a key that cannot be had."""
    return {name: _build_policy(settings, name, policy) for name, policy in settings.policies.items()}


def _build_policy(settings: Settings, name: str, policy: PolicySettings) -> ChatPolicyServer:
    key = read_server_key(settings, f"policies.{name}", policy)
    endpoint = Endpoint(policy.base_url, Credentials(key, policy.extra_headers), policy.api_version)
    return ChatPolicyServer(
        name=name,
        model=policy.model,
        connection=Connection(endpoint),
        temperature=policy.temperature,
        max_output_tokens=policy.max_output_tokens,
        deadline_seconds=policy.deadline_seconds,
        extra_body=policy.extra_body,
        continue_body=policy.continue_body,
        max_concurrency=policy.max_concurrency,
    )
