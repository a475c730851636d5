"""What `atropos-envs serve`, `process` and `evaluate` import and read: once, in the process that programs are forked
from."""

import gc

from tests.support.parsed_files import keep_parsed_files

keep_parsed_files()

import app.cli.evaluate.command  # noqa: E402
import app.cli.process.command  # noqa: E402
import app.cli.serve  # noqa: E402, F401
from app.datasets.configured_datasets import ConfiguredDatasets  # noqa: E402
from app.main.components import discover  # noqa: E402
from app.service.catalogue import Catalogue  # noqa: E402

Catalogue(discover()).open(ConfiguredDatasets({}))
gc.freeze()  # a look for cycles in a fork would copy all of it
