"""Options that every command with a policy server and a gateway shares, and the panels of their help."""

from pathlib import Path
from typing import Annotated, Final

import typer

CONNECTIONS: Final = "Connections"
TASKS: Final = "Tasks"
SAMPLING: Final = "Sampling"
COST_AND_CHECKS: Final = "Cost and checks"

PolicyUrl = Annotated[
    str, typer.Option(help="URL of the OpenAI-compatible policy server.", rich_help_panel=CONNECTIONS)
]
PolicyModel = Annotated[str, typer.Option(help="Model name on the policy server.", rich_help_panel=CONNECTIONS)]
PolicyKeyVariable = Annotated[
    str | None, typer.Option(help="Environment variable with the policy API key.", rich_help_panel=CONNECTIONS)
]
GatewayUrl = Annotated[
    str, typer.Option(help="Gateway URL.", show_default="from settings", rich_help_panel=CONNECTIONS)
]
GatewayKey = Annotated[
    str, typer.Option(envvar="ATROPOS_ENVS_API_KEY", help="Gateway API key.", rich_help_panel=CONNECTIONS)
]
PolicyStep = Annotated[int | None, typer.Option(min=0, help="Training step of the policy.", rich_help_panel=TASKS)]
EnvironmentParams = Annotated[str, typer.Option(help="Environment params, as a JSON object.", rich_help_panel=TASKS)]
MaxTokens = Annotated[int, typer.Option(min=1, help="Maximum tokens per completion.", rich_help_panel=SAMPLING)]
Temperature = Annotated[float, typer.Option(min=0, max=2, help="Sampling temperature.", rich_help_panel=SAMPLING)]
TopP = Annotated[
    float | None, typer.Option(min=0, max=1, help="Nucleus sampling probability (top_p).", rich_help_panel=SAMPLING)
]
ExtraFields = Annotated[
    str, typer.Option(help="Extra request fields, as a JSON object; null removes a field.", rich_help_panel=SAMPLING)
]
Concurrency = Annotated[
    int, typer.Option(min=1, max=4096, help="Concurrent requests to the policy server.", rich_help_panel=SAMPLING)
]
StoreTokens = Annotated[
    bool,
    typer.Option(
        "--store-tokens",
        help="Store ids and log probabilities of single answers in the gateway too.",
        rich_help_panel=SAMPLING,
    ),
]
CheckTokens = Annotated[
    bool,
    typer.Option(
        "--check-tokens",
        help="Count where --tokenizer gives other ids for the text than the server told.",
        rich_help_panel=SAMPLING,
    ),
]
InputPrice = Annotated[
    float | None,
    typer.Option(min=0, help="Price in US dollars per million prompt tokens.", rich_help_panel=COST_AND_CHECKS),
]
OutputPrice = Annotated[
    float | None,
    typer.Option(min=0, help="Price in US dollars per million completion tokens.", rich_help_panel=COST_AND_CHECKS),
]


def require_tokenizer(checks_tokens: bool, tokenizer: Path | None) -> None:
    """ValueError for `--check-tokens` without one."""
    if checks_tokens and tokenizer is None:
        raise ValueError("--check-tokens needs --tokenizer: the model's tokenizer.json")
