"""`atropos-envs sheets`: what an author of characters does from a terminal."""

import typer

sheets = typer.Typer(help="Check and try character sheets.", no_args_is_help=True)


@sheets.callback()
def about() -> None:
    """Check and try character sheets."""
