"""The tokens of episodes, for `process` and `evaluate`: what the inference server told, and what texts give again."""

from collections.abc import Sequence

from app.cli.rollout import require_model
from app.domain.errors import InvalidRequest, RequestRefused, Unavailable
from app.domain.tasks import Completion, Message
from app.inference.chat_episodes import ChatEpisode
from app.inference.server import InferenceServer
from app.inference.token_check import CheckedTurn, check_turn
from app.inference.token_sequences import Exchange
from app.inference.tokenizer import LocalTokenizer
from app.inference.wire import EXTENSIONS, Extension, SampledMessage
from app.service.request_models import HandedOutTask


async def probe_server(server: InferenceServer) -> tuple[tuple[Extension, ...], SampledMessage]:
    """The server's supported extensions, and its reply to a request for one token. Unavailable when it does not answer;
    RequestRefused when it refuses even a plain request, NotFound for an unknown model."""
    await require_model(server)
    hello = (Message(role="user", content="Hello."),)
    refused: RequestRefused | Unavailable | None = None
    for extensions in EXTENSIONS:
        asked = InferenceServer(server.connection, server.model, server.sampling.shortest, extensions)
        try:
            return extensions, (await asked.ask(hello)).said[0]
        except InvalidRequest as error:
            refused = error
    raise refused or Unavailable(f"{server.base} was not asked")


def build_exchanges(task: HandedOutTask, episode: ChatEpisode, tokenizer: LocalTokenizer | None) -> list[Exchange]:
    """Token ids that the server did not return come from the tokenizer; ValueError when there is none. The server's log
    probabilities are used with its own tokens only."""
    return [
        _build_exchange(task, (*task.messages, *episode.messages[:place]), said, tokenizer)
        for said, place in zip(episode.said, episode.places, strict=True)
    ]


def _build_exchange(
    task: HandedOutTask, before: Sequence[Message], said: SampledMessage, tokenizer: LocalTokenizer | None
) -> Exchange:
    if tokenizer is None and not said.has_tokens:
        raise ValueError("the policy's server returned no token ids: set --tokenizer")
    prompt, ids = said.prompt_ids, said.ids
    if tokenizer is not None:
        prompt = tokenizer.encode_prompt(before, task.tools) if prompt is None else prompt
        ids = tokenizer.encode_reply(before, task.tools, said) if ids is None else ids
    return Exchange(prompt or (), ids or (), said.logprobs, from_server=said.has_tokens)


def check_episode(task: HandedOutTask, episode: ChatEpisode, tokenizer: LocalTokenizer) -> list[CheckedTurn | None]:
    """None for a turn whose ids the server did not tell."""
    return [
        check_turn(tokenizer, (*task.messages, *episode.messages[:place]), task.tools, said)
        for said, place in zip(episode.said, episode.places, strict=True)
    ]


def add_token_ids(episode: ChatEpisode) -> Completion:
    """With the server's own ids, for one message: those of several are no single text of the model."""
    said = episode.said[-1]
    if len(episode.said) != 1 or said.ids is None:
        return episode.completion
    return episode.completion.model_copy(update={"token_ids": said.ids, "logprobs": said.logprobs})
