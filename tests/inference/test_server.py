"""Which refusals of an inference server may pass, and which never do."""

import pytest

from app.domain.errors import GatewayError, InvalidRequest, NotFound, Unauthorized, Unavailable
from app.domain.tasks import Message
from app.inference.connection import CHAT_PATH, Connection, Credentials, Endpoint, ServerReply
from app.inference.policies import InferenceServer
from tests.support.event_loop import finish


class Refusing(Connection):
    """Answers everything with one status."""

    def __init__(self, status: int) -> None:
        super().__init__(Endpoint("http://policy/v1", Credentials(None)))
        self._status = status

    async def post(self, body: object, path: str = CHAT_PATH) -> ServerReply:
        return ServerReply(self._status, {}, b"not\n now")


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        *((status, Unavailable) for status in (307, 408, 409, 425, 429, 500, 502, 503)),
        *((status, Unauthorized) for status in (401, 403)),
        (404, NotFound),
        *((status, InvalidRequest) for status in (400, 413, 422, 499)),
    ],
)
def test_a_status_says_whether_to_try_again(status: int, kind: type[GatewayError]) -> None:
    server = InferenceServer(Refusing(status), "m")
    with pytest.raises(GatewayError) as refused:
        finish(server.ask([Message(role="user", content="Hello?")]))
    told = f"http://policy/v1 answers {status}: not now"
    assert (type(refused.value), refused.value.detail) == (kind, told)
