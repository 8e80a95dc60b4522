"""What a scheme is: a planner, the defaults of its options, and what it declares about itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from ssfx.core.errors import ConfigError, unknown
from ssfx.core.numbers import as_number, numeric, whole
from ssfx.core.other_keys import other_key
from ssfx.core.registry import Registry
from ssfx.core.spec import Bounded, Spec
from ssfx.planning.costs import Costs
from ssfx.planning.plan import Plan
from ssfx.planning.profile import Profile
from ssfx.schemes.online_planning import OnlinePlanning
from ssfx.schemes.search.shared import shared

OTHER_OPTIONS = {
    **dict.fromkeys(("ratio", "k", "keep"), "density"),
    **dict.fromkeys(("rank", "r", "bits", "levels", "bucket"), "compressor=NAME(option=value), as powersgd(rank=4)"),
    **dict.fromkeys(("group", "pg"), "process_group"),
    **dict.fromkeys(("warmup", "warmup_steps", "start_powersgd_iter"), "dense_steps"),
    **dict.fromkeys(("momentum", "lr", "weight_decay"), "the optimizer's own, which stays as it is; drop it"),
    **dict.fromkeys(("h", "sync_every", "inner_steps", "local_steps", "period", "interval"), "every"),
    "no_sync": "with sync.no_sync(): around all but the last backward",
}
"""What people take for an option of a scheme, and what to write."""


@dataclass(frozen=True, kw_only=True)
class SchemeOptions(Bounded):
    """Options every scheme has: none."""

    def online(self) -> OnlinePlanning:
        """Return what these options ask of the runtime beside executing the plan.

        Options of a scheme that observes gradients for longer, tries plans or holds them to limits return that here.
        """
        return OnlinePlanning()

    def refuse_idle(self, *rules: tuple[bool, str, str]) -> None:
        """Raise ValueError if an option differs from its default where it has no effect.

        A rule is (where it has none, the option, what to set so that it has one).
        """
        default = {f.name: f.default for f in fields(self)}
        for idle, option, remedy in rules:
            if idle and getattr(self, option) != default[option]:
                raise ValueError(f"{option}={getattr(self, option)} has no effect here; drop it or set {remedy}")


@dataclass(frozen=True, kw_only=True)
class DenseOptions(SchemeOptions):
    """Options of schemes that send every element: an additive 16-bit compressor, or none (null)."""

    compressor: str | None = None

    def online(self) -> OnlinePlanning:
        """Return the compressor."""
        return OnlinePlanning(compressor=self.compressor)


@dataclass(frozen=True, kw_only=True)
class CompressOptions(SchemeOptions):
    """Options of schemes that compress: the compressor spec and the kept fraction in (0, 1].

    `dense_steps`: so many steps of training are sent dense, as torch DDP does, before the scheme's own plan.
    """

    compressor: str = "dgc"
    density: Annotated[float, "(0, 1]"] = 0.01
    dense_steps: Annotated[int, 0] = 0

    def online(self) -> OnlinePlanning:
        """Return compressor, density and how long everything is sent dense."""
        return OnlinePlanning(compressor=self.compressor, density=self.density, dense_steps=self.dense_steps)


Planner = Callable[[Profile, Costs, Any], Plan]


@dataclass(frozen=True)
class Scheme:
    """A registered scheme.

    `fusion_unit` says what one compressor call handles: tensor, bucket, model, large tensor. `collectives` names all
    that its plans may use, with any options. `compressors` says which it takes: "any", "additive" (and dense),
    "selecting" (those whose density decides how much is sent) or the names of some. `offload`: its plans may place
    compression on the host. `profiled` schemes need ready times and costs that only a running
    model has: the runtime first trains a few iterations with a dense plan, then asks for the real one. `worth_trying`:
    where there is one, it returns that plan and others; the runtime keeps the fastest.
    """

    name: str
    summary: str
    source: str
    planner: Planner
    defaults: SchemeOptions
    fusion_unit: str
    collectives: tuple[str, ...]
    compressors: str = "any"
    offload: bool = False
    profiled: bool = False
    worth_trying: Callable[[Profile, Costs, Any], list[Plan]] | None = None

    @property
    def dense(self) -> bool:
        """True when the scheme never leaves an element out."""
        return isinstance(self.defaults, DenseOptions)

    @property
    def chooses(self) -> bool:
        """True when the scheme chooses compressors itself unless one is given."""
        return not self.dense and self._default("compressor", "") is None

    @property
    def in_rounds(self) -> bool:
        """True when ranks step alone for many steps, and exchange weights then."""
        return self.defaults.online().rounds is not None

    def online(self, given: dict[str, Any]) -> OnlinePlanning:
        """Return what the options `given` ask of the runtime; ConfigError as `options`."""
        return self.options(given).online()

    def for_run(self, given: Mapping[str, Any], steps: int, clipped: bool) -> dict[str, Any]:
        """Return `given` with the steps of a run (0: not known), and whether it clips, if the scheme asks for them."""
        known = {"run_steps": steps, "clipped": clipped}
        return {**{name: value for name, value in known.items() if hasattr(self.defaults, name)}, **given}

    def for_nodes(self, given: Mapping[str, Any], devices: int) -> dict[str, Any]:
        """Return `given` with the number of devices in a node, where the scheme asks for it and they are not given."""
        asked = [name for name in ("ranks_per_node", "ranks_per_group") if self._default(name) == 0 and devices]
        return {**dict.fromkeys(asked, devices), **given}

    def _default(self, option: str, without: Any = None) -> Any:
        return getattr(self.defaults, option, without)

    @property
    def compressor(self) -> str | None:
        """The compressor that is used where none is given; None: no compressor, or the scheme chooses."""
        usual: str | None = self._default("compressor")
        return usual

    def plan(self, profile: Profile, costs: Costs, options: SchemeOptions) -> Plan:
        """Return the plan. Of the costs a scheme that is not `profiled` knows the number of ranks alone: others, as of
        another bandwidth, give the very same plan.
        """
        if self.profiled:
            return self.planner(profile, costs, options)
        key = (self.name, options, costs.world_size)
        return shared(profile, None, key, lambda: self.planner(profile, costs, options))

    @cached_property
    def _hints(self) -> dict[str, Any]:
        return get_type_hints(type(self.defaults))  # it evaluates text, and a sweep asks thousands of times

    def options(self, given: dict[str, Any]) -> SchemeOptions:
        """Return the defaults with `given` applied; ConfigError for an unknown key, a wrong type or a bad value."""
        known = {f.name for f in fields(self.defaults)}
        hints = self._hints
        chosen = dict(given)
        for key, value in given.items():
            if key not in known:
                if self.dense and key == "density":
                    raise ConfigError(
                        f"scheme={self.name} sends every gradient dense, so density={value} would have no effect; "
                        "drop it or choose scheme=per_tensor"
                    )
                said = other_key(key) if other_key(key).startswith(("density", "compressor")) else ""
                said = f"scheme={value!r}" if isinstance(value, str) and value in schemes else said
                raise unknown(f"option of scheme {self.name}", key, known, {key: said} | OTHER_OPTIONS)
            if key == "compressor" and value is None and not (self.dense or self.chooses):
                raise ConfigError(
                    f"scheme={self.name} compresses gradients, so it needs a compressor; "
                    "choose compressor=dgc, or scheme=ddp to send every gradient dense"
                )
            chosen[key] = _as_number(value, hints[key])
            if not _fits(chosen[key], hints[key]):
                how = as_number(value, key) if hints[key] in (int, float) else ""
                raise ConfigError(f"option {key} of scheme {self.name} must be {_text(hints[key])}, got {value!r}{how}")
        try:
            made = replace(self.defaults, **chosen)
        except ValueError as error:
            raise ConfigError(f"scheme {self.name}: {error}") from None
        self._check_compressor(getattr(made, "compressor", None))
        return made

    def _check_compressor(self, compressor: str | None) -> None:
        """Raise ConfigError where the scheme names the compressors that it takes, and this is none of them."""
        if compressor is None or self.compressors in ("any", "additive", "selecting"):
            return
        if Spec.parse(compressor, "compressor").name not in self.compressors.split(", "):
            raise ConfigError(
                f"scheme={self.name} with compressor={compressor}: it takes {self.compressors.replace(', ', ' or ')} "
                f"only; drop the compressor, or choose scheme=fused_all compressor={compressor}"
            )


def _as_number(value: Any, hint: Any) -> Any:
    """Return a value as the number that its option holds, so that 1 and 1.0 are one plan with one digest."""
    kinds = {hint, *get_args(hint)}
    if isinstance(value, bool) or str in kinds or get_origin(hint) is Literal:
        return value
    found = whole(value) if int in kinds else numeric(value) if float in kinds else value
    return float(found) if hint is float and isinstance(found, int) else found


def _fits(value: Any, hint: Any) -> bool:
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    if args := get_args(hint):
        return any(_fits(value, arg) for arg in args)
    if hint is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, hint)


def _text(hint: Any) -> str:
    if args := get_args(hint):
        names = [str(arg) if get_origin(hint) is Literal else _text(arg) for arg in args]
        return " or ".join(names)
    return {int: "a whole number", float: "a number", bool: "true or false", str: "text"}.get(hint, "null")


schemes: Registry[Scheme] = Registry("scheme", "ssfx.schemes", "one_call")


def scheme(
    name: str,
    *,
    summary: str,
    source: str,
    defaults: SchemeOptions,
    fusion_unit: str,
    collectives: tuple[str, ...],
    compressors: str = "any",
    offload: bool = False,
    profiled: bool = False,
    worth_trying: Callable[[Profile, Costs, Any], list[Plan]] | None = None,
) -> Callable[[Planner], Planner]:
    """Register the decorated planner under `name`; stack the decorator to register variants with other defaults."""

    def decorate(planner: Planner) -> Planner:
        schemes.add(
            Scheme(
                name,
                summary,
                source,
                planner,
                defaults,
                fusion_unit,
                collectives,
                compressors,
                offload,
                profiled,
                worth_trying,
            )
        )
        return planner

    return decorate
