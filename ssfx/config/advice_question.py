"""From the words of `ssfx advise` to the Setting that they ask about."""

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from ssfx.advice.measured_step import with_step
from ssfx.advice.ranking import Advice, advise
from ssfx.advice.setting import TASKS, Setting
from ssfx.advice.sharded_steps import Others
from ssfx.config.clusters import check_recorded, choice_at
from ssfx.config.compose import compose
from ssfx.config.iteration_time import KEY, ON_ALL, split_words, timed_model
from ssfx.config.overrides import read
from ssfx.config.schema import MOST, Settings
from ssfx.config.shared_model import SHARDING_KEYS, shared_model
from ssfx.config.simulations import with_custom
from ssfx.config.sweep import single
from ssfx.core.errors import ConfigError, unknown
from ssfx.core.numbers import as_number, whole
from ssfx.perf_model.cluster_file import cluster_of
from ssfx.perf_model.saved_profiles import check_device, lasting
from ssfx.perf_model.target import target_at
from ssfx.planning.profile import Profile
from ssfx.schemes.search.recorded_network import FAMILIES

ADVICE_KEYS = (
    "model",
    "workload",
    "cluster",
    "density",
    "batch_size",
    "accumulate",
    "optimizer",
    "clip_norm",
    "world_size",
    "device",
    "precision",
    *SHARDING_KEYS,
)
"""What advice depends on."""
STEPS = "train_steps"
"""Steps of dense training; a delay of a method weighs the less the more there are."""


def split_task(words: Iterable[str]) -> tuple[tuple[str, ...], bool]:
    """Return `words` without task=..., and whether it is fine-tuning; ConfigError for another of TASKS."""
    others = tuple(word for word in words if not word.startswith("task="))
    given = {word.partition("=")[2] for word in words if word.startswith("task=")}
    if any(word.startswith("target=") for word in others):
        raise ConfigError("the time to a quality is ssfx advise ... --quality; drop target=")
    if given - set(TASKS) or len(given) > 1:
        said = ",".join(sorted(given))
        meant = TASKS[1] if re.search("tun|sft|lora|squad|glue|instruct|chat", said.lower()) else TASKS[0]
        raise ConfigError(f"task={said}: it is {TASKS[0]}, from new weights, or {TASKS[1]}; did you mean task={meant}?")
    return others, given == {TASKS[1]}


def split_family(words: Iterable[str]) -> tuple[list[str], str]:
    """Return `words` without family=..., and what it says the network is; ConfigError for what nothing is recorded of.

    Blanks of a family may be underscores.
    """
    others = [word for word in words if not word.startswith("family=")]
    given = {word.partition("=")[2].replace("_", " ").lower() for word in words if word.startswith("family=")}
    for name in given - set(FAMILIES):
        raise unknown("family", name, FAMILIES, {"vit": FAMILIES[3], "cnn": FAMILIES[0], "rnn": FAMILIES[1]})
    if len(given) > 1:
        raise ConfigError(f"family is given twice; keep one of {', '.join(sorted(given))}")
    return others, next(iter(given), "")


def split_steps(words: Iterable[str]) -> tuple[tuple[str, ...], int | None]:
    """Return `words` without train_steps=..., and its value; ConfigError for what is no number of steps."""
    others = tuple(word for word in words if not word.startswith(f"{STEPS}="))
    given = [word.partition("=")[2] for word in words if word.startswith(f"{STEPS}=")]
    if len(given) > 1:
        raise ConfigError(f"{STEPS} is given twice; keep one of them")
    if not given:
        return others, None
    text = str(whole(given[0].replace("_", "")))
    if not text.isdecimal() or not 1 <= int(text) <= MOST["steps"]:
        how = as_number(text).removeprefix("; write ")
        how = how if how.isdecimal() and 1 <= int(how) <= MOST["steps"] else "10000"
        raise ConfigError(
            f"{STEPS}={given[0]} is no number of steps; write those of a dense training, as {STEPS}={how}"
        )
    return others, int(text)


def resolve_setting(words: Iterable[str], profile: Profile | None = None) -> Setting:
    """Return the setting that `words` ask about; ConfigError for a sweep or a key that no advice depends on.

    With a `profile` it is that one's model at its batch size, which override the words, and in its precision.
    """
    words, train_steps = split_steps(list(words))
    words, fine_tuning = split_task(words)
    words, family = split_family(words)
    words, iteration_ms = split_words(words)
    words, on_all_ms = split_words(words, ON_ALL)
    if on_all_ms is not None and iteration_ms is None:
        raise ConfigError(
            f"{ON_ALL}={on_all_ms:g} tells the bandwidth beside the step of one device alone; add {KEY}=..., measured "
            "on one device with the same batch"
        )
    try:
        request = read(words)
    except ConfigError as error:
        how = r"advice compares schemes as they are: drop it, or write ssfx simulate scheme=NAME with \1"
        said = re.sub(r"did you mean ('scheme\.\w+'|(scheme|compressor)=\w+).*", how, str(error))
        raise ConfigError(said.replace("mean 'steps'", f"mean '{STEPS}'")) from None
    for key in request:
        if key in ("scheme", "compressor") or key.startswith(("scheme.", "compressor.")):
            raise ConfigError(
                f"advice compares all schemes, each with its own compressor, so {key} has no place; drop it, or "
                "compare some with ssfx simulate scheme=a,b"
            )
        if key not in ADVICE_KEYS and not key.startswith("cluster."):
            how = f"write {STEPS}={request[key][0]}" if key == "steps" else "drop it"
            takes = ", ".join((*ADVICE_KEYS, KEY, ON_ALL, STEPS, "task", "family"))
            raise ConfigError(f"advice does not depend on {key}; it takes {takes}; {how}")
    point = single(request, "advise")
    point = with_custom(point) if profile is None else point
    config = compose(point)
    settings = Settings.of(config)
    model, on = config["model"]["name"], settings.device
    cluster = cluster_of(config["cluster"], settings.world_size, on)
    check_recorded(point, cluster)
    if profile is None:
        choice = choice_at(point, cluster)
        model = timed_model(model, iteration_ms)
        target = target_at(
            choice, cluster.world_size, on, model, settings.batch_size, settings.optimizer, settings.precision
        )
        setting = Setting(target.cluster, target.profile, precision=target.profile.precision or settings.precision)
    else:
        if "precision" in point:
            profile = profile.at(settings.precision, "what was profiled")
        check_device(profile, cluster.device, "what was profiled")
        profile = profile if iteration_ms is None else lasting(profile, iteration_ms)
        setting = Setting(replace(cluster, name=str(choice_at(point, cluster))), profile)
    density = setting.density if settings.density is None else settings.density
    shared = shared_model(settings, cluster)
    setting = replace(setting, profile=replace(setting.profile, family=family or setting.profile.family))
    asked = replace(
        setting,
        density=density,
        accumulate=settings.accumulate,
        train_steps=train_steps,
        fine_tuning=fine_tuning,
        sharding=shared,
        clipped=settings.clip_norm is not None if "clip_norm" in request else None,
        shard_compressor=settings.shard_compressor,
        others=Others(settings.weights, settings.exempt),
    )
    return asked if on_all_ms is None else with_step(asked, 1e-3 * on_all_ms)


def advise_on(profile: Profile, cluster: str = "local", batch_size: int = 0, **options: Any) -> Advice:
    """Return the advice for a profiled model on `cluster`; `str()` of it is the answer as `ssfx advise` prints it.

    `options` are other keys of `ssfx advise`: density, and those of the cluster with "_" for ".", as
    cluster_nodes=8. `batch_size`: samples of a rank and step, where the profile does not know.
    """
    if not hasattr(profile, "ready_gap_s"):  # a type checker knows, a notebook does not
        raise ConfigError(
            f"advise_on takes an ssfx Profile, got {type(profile).__name__}; ssfx profile FILE.py:FUNCTION writes one, "
            'and Profile.from_json(Path("FILE.json").read_text()) reads it'
        )
    words = [f"cluster={cluster}", *(f"{_key(name)}={value}" for name, value in options.items())]
    known = replace(profile, batch_size=batch_size or profile.batch_size or 1)
    return advise(resolve_setting(words, known))


def _key(name: str) -> str:
    return name.replace("cluster_", "cluster.", 1) if name.startswith("cluster_") else name
