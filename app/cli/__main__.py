"""`python -m app.cli` is `atropos-envs`."""

from app.cli.main import run

run()
