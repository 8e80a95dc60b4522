"""The capability table of schemes: what `ssfx list schemes` and the README show, from the components' declarations."""

from dataclasses import dataclass

from ssfx.collectives import Reducer, collectives
from ssfx.compressors import build
from ssfx.schemes import Scheme, schemes

_SOME_MATRIX = (64, 64)


@dataclass(frozen=True, slots=True)
class Capability:
    """One line: what one compressor call handles, what may be combined, and what is kept between steps.

    `exchange` says how messages of ranks become one: "sums" on the way, "gathers" all of them, "reduces" selected
    elements in several phases. `state` names error feedback and what compressor and collective keep, by default.
    """

    scheme: str
    fusion_unit: str
    compressors: str
    collectives: str
    exchange: str
    offload: str
    state: str
    planned: str
    summary: str


HEADER = ("scheme", "fusion unit", "compressors", "collectives", "exchange", "offload", "state", "planned", "summary")


def capabilities() -> list[Capability]:
    """Return one line per registered scheme, by name."""
    return [_capability(scheme) for scheme in schemes]


def _capability(scheme: Scheme) -> Capability:
    default = getattr(scheme.defaults, "compressor", None)
    takes = f"{scheme.compressors} ({default})" if default and scheme.compressors != default else scheme.compressors
    exchange = sorted({_exchange(name) for name in scheme.collectives})
    return Capability(
        scheme.name,
        scheme.fusion_unit,
        takes,
        ", ".join(scheme.collectives),
        ", ".join(exchange),
        "yes" if scheme.offload else "-",
        ", ".join(_state(scheme, default)) or "-",
        "after profiling" if scheme.profiled else "at once",
        scheme.summary,
    )


def _exchange(name: str) -> str:
    cls = collectives[name].cls
    if issubclass(cls, Reducer):
        return "reduces"
    return "sums" if cls.additive_only else "gathers"


def _state(scheme: Scheme, default: str | None) -> list[str]:
    if default is None:
        return []
    compressor, state = build(default), []
    if compressor.error_feedback and not compressor.lossless:
        state.append("residual")
    state += compressor.state_shapes([_SOME_MATRIX])
    for name in scheme.collectives:
        cls = collectives[name].cls
        state += cls.state_names if issubclass(cls, Reducer) else ()
    return state
