"""What the user typed, read by Hydra's grammar and checked: words become a mapping from keys to their values."""

import re
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ssfx.config.groups import GROUPS, OPTION_GROUPS, WITH_SPECS, check_choice, choices, options
from ssfx.config.schema import KEYS, TYPES, typed, word_choices
from ssfx.core import slurm_site
from ssfx.core.cluster_keys import OTHER_NAMES
from ssfx.core.errors import ConfigError, near, nearest, some_of, unknown
from ssfx.core.other_keys import other_key, spelt
from ssfx.core.spec import Spec
from ssfx.perf_model.saved_profiles import is_saved

Request = dict[str, tuple[Any, ...]]
"""Keys in the order they were given, each with the values it shall take."""

SHORT = {"cluster.link": "cluster.inter.link", "cluster.inside": "cluster.intra.link"}
"""Keys that say in a word what a cluster is made of."""

_SPLIT_OFF = ("iteration_ms", "cluster_iteration_ms", "train_steps", "profile", "family")
"""Keys that commands take from the words before they are read."""
_FILES = {".py": "model={}:FUNCTION", ".yaml": "cluster={}", ".yml": "cluster={}", ".json": "profile={} or --json>FILE"}
"""What files may be meant for, by how they end."""
_MOST_USED = "model, cluster, scheme, compressor, density, batch_size, accumulate, optimizer, precision, sharding"
_MOST_OF_CLUSTERS = "nodes, devices_per_node, device, inside, link, inter.gbps, inter.latency_s"
_MACHINES = ("cluster.nodes", "cluster.device", "cluster.nics", "cluster.inter.", "cluster.intra.")
"""Beginnings of keys that say what machines are."""
_CALL = re.compile(r"([a-z_]\w*)\(")
_HYDRA = {
    "launcher sweeper": "ssfx starts the runs itself: write engine=torchrun, engine=slurm or engine=simulate",
    "run sweep output": "results are under ./results, or where SSFX_RESULTS says: write SSFX_RESULTS=DIR ssfx run ...",
    "job_logging hydra_logging verbose": "logs are in results/runs/<run_id>; drop it",
    "searchpath": "write --config-dir DIR",
    "mode": "a comma list is a sweep in any case; drop it",
}
"""Beginnings of Hydra's own keys, and what to write instead."""
_DROP = "ssfx reads Hydra's files, without its application; drop it"


def read(words: Iterable[str]) -> Request:
    """Return the request that `words` spell; ConfigError, one line, for anything that cannot be meant."""
    request: Request = {}
    words = list(words)
    if {"model", "profile"} <= {word.partition("=")[0] for word in words}:
        raise ConfigError("profile=FILE is in place of a model; drop model=, or profile=")
    for word in words:
        key, values = _parse_slurm(word) or _parse(word)
        if key == "profile":  # a saved profile stands where a model may
            if odd := next((str(value) for value in values if not is_saved(str(value))), None):
                raise ConfigError(f"profile={odd} is no file of a profile, which ends in .json; {_instead(odd)}")
            key = "model"
        key = SHORT.get(key, key)
        if key in request:
            raise ConfigError(f"{key} is given twice; write {key}=a,b for both, where several may be, or keep one")
        if key == "scheme":
            values = tuple(name for value in values for name in _schemes(str(value)))
        request[key] = check(key, values)
    described = [key for key in request if key.startswith(_MACHINES)]
    if described and not {"cluster", "experiment"} & set(request):
        key, value = described[0], request[described[0]][0]
        raise ConfigError(f"{key}={value} describes no machine without a cluster; write cluster=box {key}={value}")
    return request


def _instead(file: str) -> str:
    """Return what a file that is no profile may be meant for."""
    kind = Path(file).suffix
    if kind in (".yaml", ".yml", ".log", ".txt"):
        return f"is it cluster={file}?"
    if kind == ".py":
        return f"is it model={file}:FUNCTION?"
    if kind or Path(file).is_dir():
        return "ssfx profile FILE.py:FUNCTION writes one, or ssfx profile trace=FILE"
    return f"is it model={file}?"


def of_value(value: str) -> str:
    """Return the key that has such a value; "" for none, as of a number."""
    keys = ("model", "cluster", "scheme", "compressor", "dataset", "experiment", "optimizer", "precision")
    return next((key for key in keys if value not in ("auto", "none") and _has(key, value)), "")


def _has(key: str, value: str) -> bool:
    return value in (choices(key) if key in GROUPS else word_choices(key) if key in KEYS else ())


def known_key(name: str) -> str:
    """Return the key that `name` is, or is another word for; "" where it is none."""
    return name if name in (*GROUPS, *KEYS, *_SPLIT_OFF) else other_key(name)


def _schemes(value: str) -> tuple[str, ...]:
    """Return the schemes that a word means: all of them, the paper's own by its name, or itself."""
    if value == "all":
        return choices("scheme")
    return ("ssfusion_oi",) if value.lower() == "ssfusion" else (value,)


def check(key: str, values: Sequence[Any]) -> tuple[Any, ...]:
    """Return `values` typed for `key`; ConfigError when the key or a value does not exist."""
    group, dot, option = key.partition(".")
    if dot:
        _check_option(group, option, key)
        return tuple(values)
    if key in GROUPS:
        for value in map(str, values):
            if not _has(key, value) and (other := of_value(value)) not in ("", "scheme", "compressor"):
                raise ConfigError(f"unknown {key} {value!r}, which is a {other}; write {other}={value}")
        return tuple(None if _unset(key, value) else check_choice(key, value) for value in values)
    if key in KEYS:
        return tuple(typed(key, value) for value in values)
    if f"cluster.{key}" in SHORT or any(key in options("cluster", choice) for choice in choices("cluster")):
        raise ConfigError(f"unknown key {key!r}; did you mean 'cluster.{key}'?")
    keys = [*GROUPS, *KEYS, *_SPLIT_OFF]
    meant, value = "" if spelt(key, keys) else other_key(key), str(next(iter(values), ""))
    if not spelt(key, keys) and not _has(meant, value) and (other := of_value(value)) not in ("", *near(key, keys)):
        raise ConfigError(f"unknown key {key!r}; did you mean {other}={value}?")
    if not meant and any(key in options("scheme", choice) for choice in choices("scheme")):
        raise ConfigError(f"unknown key {key!r}; did you mean 'scheme.{key}'?")
    if meant or near(key, keys):
        raise unknown("key", key, keys, {key: meant} if meant else {})
    raise ConfigError(f"unknown key {key!r}; most used are {_MOST_USED}: docs/configuration.md has all {len(keys)}")


def typed_options(group: str, spec: Spec) -> dict[str, Any]:
    """Return the options in the brackets of a choice, typed as Hydra types them."""
    return {key: _parse(f"{group}.{key}={value}")[1][0] for key, value in spec.options.items()}


def _parse_slurm(word: str) -> tuple[str, tuple[Any, ...]] | None:
    """Return key and value of a word for Slurm, whose punctuation is not that of Hydra's grammar; None for others.

    ConfigError, with what to type, for an option of sbatch or a variable of its scripts that stands alone.
    """
    key, equals, text = word.partition("=")
    if key.startswith(f"cluster.{slurm_site.PREFIX}"):
        if not text:
            raise ConfigError(f"{word!r} is not key=value; write for example cluster.slurm.partition=a,b")
        name = key.removeprefix(f"cluster.{slurm_site.PREFIX}")
        if name not in slurm_site.SBATCH.values():
            raise ConfigError(f"{unknown('option of cluster', f'slurm.{name}', _slurm_options(name))}")
        return key, (slurm_site.from_word(name, text),)
    if not equals or key in (*GROUPS, *KEYS):
        return None
    if key in slurm_site.SBATCH:
        said = f"cluster.slurm.{slurm_site.SBATCH[key]}={text}"
    elif key.isupper() and len(key) > 1:
        if known_key(key.lower()):
            raise ConfigError(f"unknown key {key!r}; did you mean {key.lower()}={text}?")
        said = f"cluster.slurm.environment={{{key}:{text}}}"
    else:
        return None
    raise ConfigError(f"unknown key {key!r}; for Slurm write {shlex.quote(said)}")


def _slurm_options(name: str) -> list[str]:
    meant = slurm_site.SBATCH.get(name)
    return [f"slurm.{meant}"] if meant else list(slurm_site.OPTIONS)


def _unset(key: str, value: Any) -> bool:
    return value is None and key in ("compressor", "memory")


def _check_option(group: str, option: str, key: str) -> None:
    if group not in OPTION_GROUPS:
        if group in (*GROUPS, *KEYS):
            raise ConfigError(f"{group} has no options, so {key} means nothing; write {group}=value")
        raise unknown("group", group, OPTION_GROUPS)
    names = {name for choice in choices(group) for name in options(group, choice)}
    if option not in names:
        part, _, key = option.rpartition(".")
        if part in ("inter", "intra") and (field := OTHER_NAMES.get(key) or other_key(key).rpartition(".")[2]):
            name, _, unit = field.partition(",")
            unit = unit or (" in seconds" if name == "latency_s" else "")
            raise ConfigError(
                f"unknown option of cluster {option!r}; did you mean 'cluster.{part}.{name}'{unit and f',{unit}'}?"
            )
        if group == "cluster" and (option in OTHER_NAMES or not spelt(option, list(names))):
            if meant := other_key(option):
                raise ConfigError(f"unknown option of cluster {option!r}; did you mean {meant!r}?")
            if not near(option, sorted(names)):
                raise ConfigError(
                    f"unknown option of cluster {option!r}; most used are {_MOST_OF_CLUSTERS}: docs/clusters.md has all"
                )
        raise unknown(f"option of {group}", option, names)


def _parse(word: str) -> tuple[str, tuple[Any, ...]]:
    from hydra.core.override_parser.overrides_parser import OverridesParser, create_functions
    from hydra.core.override_parser.types import Glob, IntervalSweep, OverrideType
    from hydra.errors import HydraException

    key, equals, text = word.partition("=")
    _refuse_habit(word, key, text)
    if text.startswith("="):
        raise ConfigError(f"{word!r} has = twice; write {key}={text.lstrip('= ')}")
    if not equals:
        raise ConfigError(_without_equals(word))
    if not key or not text:
        how = f"{key} has no value, write {key}=VALUE" if key else "write density=0.05"
        raise ConfigError(f"{word!r} is not key=value; {how} without blanks around =")
    pairs = re.split(r"[,;&|]\s*(?=[a-z_.]+=)", word)
    if len(pairs) > 1 and "(" not in word:
        raise ConfigError(f"{word!r} is several words; write {' '.join(pairs)}")
    if inside := re.search(r"\s([a-z_.]+=)", text):
        raise ConfigError(f"{word!r} is several words in one pair of quotes; write {inside[1]}... outside of it")
    parts = re.split(r"\s*(?:[;|+&/]|\bvs\b|\band\b|\s)\s*", text)
    if key in GROUPS and len(parts) > 1 and {*parts} <= {*choices(key)}:
        raise ConfigError(f"{word!r} has several values; write {key}={','.join(parts)}")
    functions = create_functions()
    specs = key in (*WITH_SPECS, "shard_compressor", "weights")
    for name in set(_CALL.findall(text)) - set(functions.definitions) if specs else ():
        functions.register(name, _spec_of(name))
    try:
        override = OverridesParser(functions).parse_override(word)
    except (HydraException, TypeError):
        if text.endswith(","):
            raise ConfigError(f"{word!r} ends with a comma; write {key}={text[:-1]}, or {text}b of both") from None
        if text.startswith("~"):
            raise ConfigError(f"{word!r}: ~ is left as it is; write {key}={Path(text).expanduser()}") from None
        if text.count("'") % 2 or text.count('"') % 2:
            bare = text.replace("'", "").replace('"', "")
            raise ConfigError(f"{word!r} has a quote that is not closed; write {key}={bare}") from None
        how = "options are written name(option=value)" if "(" in text else f"write {key}=a,b to run several"
        how = f"ssfx calls the function: write {key}={text.partition('(')[0]}" if ".py:" in text else how
        raise ConfigError(f"cannot read {word!r}; {how}, and range(), choice() and glob() are as in Hydra") from None
    if override.type != OverrideType.CHANGE or override.package is not None:
        raise ConfigError(f"cannot read {word!r}; keys are only changed, by key=value")
    value = override.value()
    if isinstance(value, IntervalSweep):
        raise ConfigError(f"{word!r} names no values; write {key}=a,b, or {key}=range(start,stop,step)")
    if isinstance(value, Glob):
        if key not in GROUPS:
            raise ConfigError(f"glob() chooses files and components, and {key} is a number or a word; write {key}=a,b")
        values = tuple(value.filter(list(choices(key))))
        if not values:
            raise ConfigError(f"{word!r} fits no {key}; choose some of: {some_of(choices(key))}")
        return key, values
    values = tuple(override.sweep_iterator()) if override.is_sweep_override() else (value,)
    if re.fullmatch(r"0,0*\d+" if key == "density" else r"0,0+\d+", text):
        raise ConfigError(f"{word!r} has a comma, which separates values; write {key}={text.replace(',', '.')}")
    if re.fullmatch(r"[1-9]\d{0,2}(,000)+", text):
        raise ConfigError(f"{word!r} has a comma, which separates values; write {key}={text.replace(',', '')}")
    if twice := [one for one in values if values.count(one) > 1]:
        raise ConfigError(f"{word!r} has {_plain(twice[0])} twice; write each value once")
    if isinstance(value, list | dict) and (key in GROUPS or TYPES.get(key) in (int, float, float | None)):
        each = ",".join(map(str, value))
        raise ConfigError(f"{word!r} is a list; write {key}={each} to run each of its values")
    return override.key_or_group, tuple(_plain(element) for element in values)


def _refuse_habit(word: str, key: str, text: str) -> None:
    """Raise ConfigError, saying what to type instead, for what Hydra's own applications understand."""
    if key.startswith("+"):
        name = key.lstrip("+")
        raise ConfigError(f"{word!r}: no key is added, all of them exist; write {name}={text or 'value'}")
    if key.startswith("~"):
        raise ConfigError(f"{word!r}: Hydra's ~key is not supported; to unset a key, write {key[1:]}=null")
    if key.startswith(("hydra/", "hydra.")):
        where = key.removeprefix("hydra")[1:]
        line = next((line for starts, line in _HYDRA.items() if where.startswith(tuple(starts.split()))), _DROP)
        raise ConfigError(f"{word!r} has no effect; {line}")


def _spec_of(name: str) -> Any:
    """Return what Hydra's grammar calls for name(option=value,...): it gives the text back, as one choice."""
    from hydra.core.override_parser.types import QuotedString

    def text(value: Any) -> str:
        if value is None or isinstance(value, bool):
            return {None: "null", True: "true", False: "false"}[value]
        return str(value.text if isinstance(value, QuotedString) else value)

    # A lambda has no annotations, which the grammar would check. A spec refuses a value that stands without its key.
    return lambda *bare, **given: (
        f"{name}({','.join([*map(text, bare), *(f'{key}={text(value)}' for key, value in given.items())])})"
    )


def _plain(value: Any) -> Any:
    # The parser wraps quoted text.
    from hydra.core.override_parser.types import QuotedString

    return value.text if isinstance(value, QuotedString) else value


def _without_equals(word: str) -> str:
    said = f"{word!r} is not key=value; "
    if word[:1] == "{" and (pairs := re.findall(r"([\w.]+)['\"]?\s*[:=]\s*['\"]?([^'\",}\s]+)", word)):
        return f"{said}write {' '.join(map('='.join, pairs))}"
    if word in (*GROUPS, *KEYS, "="):
        return f"{said}did you mean {word.strip('=') or 'KEY'}=...? There are no blanks around ="
    if match := re.fullmatch(r"([a-z_.]+)\s*(?::=?|\s)\s*(\S+)", word):
        return f"{said}did you mean {match[1]}=...? Write {match[1]}={match[2]}"
    for group in GROUPS:
        if word in choices(group):
            return f"{said}did you mean {group}={word}?"
    if kind := _FILES.get(Path(word).suffix):
        return f"{said}did you mean {kind.format(word)}?"
    close = nearest(word, [*GROUPS, *KEYS])
    if close:
        return f"{said}did you mean {close}=...?"
    for group in ("model", "cluster", "scheme", "experiment"):
        if found := near(word, choices(group))[:1]:
            return f"{said}did you mean {group}={found[0]}?"
    return f"{said}write for example model=gpt2 cluster=64gpu scheme=ddp"
