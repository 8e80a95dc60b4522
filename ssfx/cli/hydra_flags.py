"""Flags of Hydra's own applications that ssfx has not, and what to type instead."""

from __future__ import annotations

from collections.abc import Sequence

_FLAGS = {
    "-cd": "write --config-dir DIR",
    "-cn --config-name": "one configuration is the root of all; write experiment=NAME, workload=NAME or preset=NAME",
    "-cp --config-path": "write --config-dir DIR for files of your own",
    "-i --info": "write --cfg job for the configuration, and ssfx doctor for this machine",
    "-c": "write --cfg job or --cfg all",
    "-r --run": "ssfx run runs; drop it",
    "-p --package": "--cfg prints all of the configuration; drop it",
    "--resolve": "--cfg job prints resolved values; drop it",
    "--cfg=hydra": "ssfx is no Hydra application and has no such configuration; write --cfg job",
    "-sc --shell-completion": 'write eval "$(_SSFX_COMPLETE=bash_source ssfx)"',
    "--experimental-rerun": "write the command again; finished runs are not repeated",
    "--hydra-help": "write --help",
}
_LINES = {flag: line for flags, line in _FLAGS.items() for flag in flags.split()}


def instead_of(words: Sequence[str]) -> str:
    """Return the first of Hydra's flags among `words`, with what to type instead; "" if there is none."""
    joined = " ".join(words).replace("--cfg hydra", "--cfg=hydra").split(" ")
    for word in joined:
        for flag in (word, word.partition("=")[0]):
            if flag in _LINES:
                return f"{flag} is a flag of Hydra's: {_LINES[flag]}"
    return ""
