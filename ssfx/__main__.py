"""`python -m ssfx` is the command `ssfx`."""

import sys

from ssfx.cli import main

sys.exit(main())
