"""A launcher in a process of its own: drive.py ROOT CASE_JSON...; it exits as the command line does.

DRIVE_TRAIN names what ranks call instead of the fake training function; empty: the real one. DRIVE_ENGINE names another
engine than torchrun.
"""

import os
import sys
from pathlib import Path

from ssfx.core.case import Case
from ssfx.core.errors import SsfxError
from ssfx.lab.engines.netns import Netns
from ssfx.lab.engines.torchrun import Torchrun
from ssfx.lab.results.store import Store

if __name__ == "__main__":
    root, *texts = sys.argv[1:]
    try:
        train = os.environ.get("DRIVE_TRAIN", "fake_train:train")
        engine = Netns if os.environ.get("DRIVE_ENGINE") == "netns" else Torchrun
        engine(**({"train": train} if train else {})).run([Case.from_json(text) for text in texts], Store(Path(root)))
    except SsfxError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
