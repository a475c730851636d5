"""What `atropos-envs serve`, `process` and `evaluate` import: once, in the process that programs are forked from."""

import gc

import app.cli.evaluate.command
import app.cli.process.command
import app.cli.serve  # noqa: F401
from app.main.discovery import discover

discover()
gc.freeze()  # a look for cycles in a fork would copy all of it
