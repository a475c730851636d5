"""What a campaign makes of a gateway's refusals, without a gateway."""

import httpx
import pytest
import respx

from app.cli.campaigns import Campaign
from app.cli.policies import TaskSkipped
from app.domain.tasks import Completion
from app.terminal.client import AnsweredTask, GatewayClient, Retrier

URL = "http://gateway.invalid"


@pytest.mark.parametrize(
    ("status", "reason"), [(404, "not_found"), (410, "pruned"), (413, "gateway_refused"), (422, "gateway_refused")]
)
@respx.mock
async def test_what_is_refused_of_one_piece_leaves_that_piece_out(status: int, reason: str) -> None:
    respx.post(f"{URL}/score").respond(status, text="no such task")
    async with httpx.AsyncClient(base_url=URL) as client:
        campaign = Campaign(GatewayClient(client), Retrier(), "r", "tasks", 1, "")
        with pytest.raises(TaskSkipped) as raised:
            await campaign.send(AnsweredTask("t", None, [Completion(text="a")]))
    told = f"{URL}/score answered {status}: no such task"
    assert (raised.value.reason, raised.value.detail) == (reason, told)
