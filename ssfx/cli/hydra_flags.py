"""Flags of Hydra's own applications and of sbatch that ssfx has not, and what to type instead."""

import shlex
from collections.abc import Sequence
from itertools import pairwise

from ssfx.core.slurm_site import PREFIX, SBATCH

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
_EACH = dict.fromkeys(("gpus-per-node", "ntasks-per-node"), "cluster.devices_per_node")
_NODES = {"nodes": "cluster.nodes", "ntasks": "world_size", **_EACH}
_LINES = {flag: line for flags, line in _FLAGS.items() for flag in flags.split()}


def instead_of(words: Sequence[str], options: Sequence[str] = ()) -> str:
    """Return the first flag of Hydra's or sbatch's among `words`, with what to type instead; "" if there is none.

    So are keys that are written as flags, unless the command has `options` that are near.
    """
    joined = " ".join(words).replace("--cfg hydra", "--cfg=hydra").split(" ")
    for word in joined:
        for flag in (word, word.partition("=")[0]):
            if flag in _LINES and not (flag == "-c" and _of_key(word, joined)):
                return f"{flag} is a flag of Hydra's: {_LINES[flag]}"
        if line := _of_sbatch(word, joined):
            return line
    keys = {} if options else {word: key for word in joined if (key := _of_key(word, joined))}
    written = " ".join([*(["ssfx advise"] if words and words[0] in keys else []), *keys.values()])
    return f"{next(iter(keys)).partition('=')[0]} is a key, not a flag: write {written}" if keys else ""


def _of_key(word: str, words: Sequence[str]) -> str:
    """Return what to write for a key that is given as a flag, as --model bert_large; "" for no such."""
    flag, _, value = word.partition("=")
    name = flag.lstrip("-").replace("-", "_")
    if flag[:1] != "-" or not name:
        return ""
    from ssfx.config.overrides import known_key, of_value  # late: a wrong command alone asks

    value = value or next((after for before, after in pairwise(words) if before == word and after[0] != "-"), "VALUE")
    key = (known_key(name) if word[:2] == "--" else "") or of_value(value)
    return f"{key}={value}" if key else ""


def _of_sbatch(word: str, words: Sequence[str]) -> str:
    flag, equals, value = word.partition("=")
    name = flag.removeprefix("--")
    if flag == name or name not in (*SBATCH, *_NODES):
        return ""
    if not equals:
        value = next((after for before, after in pairwise(words) if before == word), "VALUE")
    key = _NODES.get(name) or f"cluster.{PREFIX}{SBATCH[name]}"
    return f"{flag} is a flag of sbatch: write {shlex.quote(f'{key}={value}')}"
