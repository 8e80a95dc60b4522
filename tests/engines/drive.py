"""A launcher in a process of its own: drive.py ROOT CASE_JSON...; it exits as the command line does."""

from __future__ import annotations

import sys
from pathlib import Path

from ssfx.core.case import Case
from ssfx.core.errors import SsfxError
from ssfx.engines.torchrun import Torchrun
from ssfx.results.store import Store

if __name__ == "__main__":
    root, *texts = sys.argv[1:]
    try:
        Torchrun(train="fake_train:train").run([Case.from_json(text) for text in texts], Store(Path(root)))
    except SsfxError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
