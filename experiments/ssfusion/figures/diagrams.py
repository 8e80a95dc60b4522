"""SSFusion's diagrams: timelines of small examples, planned and simulated, a toy and the overview (Figs. 1 to 10)."""

from collections.abc import Sequence
from dataclasses import dataclass

from experiments.common.claims.verdicts import Verdict, compared
from experiments.common.evaluation.judging import says
from experiments.common.figures.figure import Figure, say_origin
from experiments.common.figures.style import COLUMN_IN, ORIGIN_LINE, Axes, Picture, plt
from experiments.common.figures.timelines import Timelines
from ssfx.core.origin import Origin
from ssfx.core.rows import Row
from ssfx.perf_model.timing_model import TimingModel
from ssfx.planning.costs import CompressorTimes, Costs, Curve, ring_exchange
from ssfx.planning.plan import Bucket, Lane, Placement, Plan, Segment, TensorSpec, launch_in_order
from ssfx.planning.profile import Profile
from ssfx.schemes.search.ssfusion_buffers import BufferPlanner, BufferRules
from ssfx.schemes.transport import Transport
from ssfx.simulator import Simulated, simulate

# ---- small examples: real plans of a few tensors, and one simulated step on an invented cluster ---------------------
# Plans come from the planners, or are given bucket by bucket where the paper gives them so; sizes and costs are
# invented so that all stages can be seen.

ORIGIN = Origin("nominal", note="invented example")
COMPRESSOR, KEPT, WORLD_SIZE = "topk", 0.1, 4


@dataclass(frozen=True)
class Example:
    """Tensors with their backward times, a network and a compressor: all that a plan and its timeline need.

    `tensors` maps names to elements in backward order; times are in milliseconds, per message, byte, call or element.
    """

    tensors: dict[str, int]
    backward_ms: tuple[float, ...]
    latency_ms: float = 0.05
    ms_per_megabyte: float = 1.0
    encode_ms: tuple[float, float] = (0.6, 1e-6)
    host_ms: tuple[float, float] = (1.2, 3e-6)

    @property
    def profile(self) -> Profile:
        """The tensors with their times; nothing but backward takes any."""
        specs = tuple(TensorSpec(name, (numel,)) for name, numel in self.tensors.items())
        return Profile("example", specs, tuple(1e-3 * gap for gap in self.backward_ms), 0.0, ORIGIN)

    @property
    def costs(self) -> Costs:
        """What planning needs; decoding is free."""
        encode, host = (Curve.affine(1e-3 * base, 1e-3 * slope) for base, slope in (self.encode_ms, self.host_ms))
        exchange = ring_exchange(WORLD_SIZE, 1e-3 * self.latency_ms, 1e-9 * self.ms_per_megabyte)
        return Costs(WORLD_SIZE, encode, host, Curve.zero(), exchange, ORIGIN)

    def plan(self, *buckets: Bucket, scheme: str = "given") -> Plan:
        """Return the plan of these buckets."""
        specs = self.profile.tensors
        return Plan(scheme, WORLD_SIZE, specs, buckets, launch_in_order(buckets, specs))

    def step(self, plan: Plan) -> Simulated:
        """Return one simulated step of a plan, executed as it is planned: one compressor call for each segment."""
        costs = self.costs
        times = CompressorTimes(costs.encode, costs.host, Curve.zero(), ORIGIN)
        system = TimingModel("example", WORLD_SIZE, {COMPRESSOR: times}, costs.exchange, ORIGIN, style="per_call")
        return simulate(plan, self.profile, system)

    def gathered(self, *groups: Sequence[str], place: Placement = "device") -> Bucket:
        """Return a bucket that is all-gathered: each group is compressed together."""
        segments = tuple(Segment(tuple(group), COMPRESSOR, KEPT, placement=place) for group in groups)
        return Bucket((Lane("all_gather", segments),))


def reduced(*tensors: str) -> Bucket:
    """Return a bucket of dense tensors that is all-reduced."""
    return Bucket((Lane("all_reduce", tuple(Segment((name,)) for name in tensors)),))


EXAMPLE = Example(
    {"7": 12_000, "6": 900_000, "5": 24_000, "4": 60_000, "3": 6_000, "2": 500_000, "1": 15_000},
    (0.5, 0.9, 0.5, 0.6, 0.5, 0.7, 0.4),
    latency_ms=0.03,
    encode_ms=(0.45, 0.15e-6),
    host_ms=(0.6, 0.3e-6),
)
"""Sizes in the paper's order: in the first buffer 7 < 5 < 4 < 6, in the second 3 < 1 < 2."""
BUFFERS = (range(0, 4), range(4, 7))


def planned(variant: str) -> Plan:
    """Return the plan for EXAMPLE of a variant of SSFusion: naive, or o and i in any order."""
    letters = "" if variant == "naive" else variant
    planner = BufferPlanner(EXAMPLE.profile, EXAMPLE.costs, Transport(COMPRESSOR, KEPT, "all_gather"))
    buckets = planner.buckets(BufferRules(offload="o" in letters, interleave="i" in letters), BUFFERS)
    return EXAMPLE.plan(*buckets, scheme=f"ssfusion_{variant}")


def per_tensor(place: Placement = "device") -> Plan:
    """Return the plan that compresses every tensor of EXAMPLE on its own."""
    names = list(EXAMPLE.tensors)
    groups = [[(names[i],) for i in at] for at in BUFFERS]
    return EXAMPLE.plan(*(EXAMPLE.gathered(*group, place=place) for group in groups))


# ---- Figs. 1, 7, 8 and 10: timelines ---------------------------------------------------------------------------------

FOUR = Example(
    {"4": 400_000, "3": 500_000, "2": 400_000, "1": 300_000},
    (0.6, 0.6, 0.6, 0.6),
    ms_per_megabyte=0.8,
    latency_ms=0.06,
    encode_ms=(0.35, 0.1e-6),
)
PAIRS = (("4", "3"), ("2", "1"))


def _fig1_steps() -> dict[str, Simulated]:
    """Return a simulated step of three ways to exchange four gradients."""
    each = [FOUR.gathered(*((name,) for name in pair)) for pair in PAIRS]
    joint = [FOUR.gathered(pair) for pair in PAIRS]
    return {
        "(a) WFBP": FOUR.step(FOUR.plan(*(reduced(name) for name in FOUR.tensors))),
        "(b) Per-tensor sparsification with tensor fusion": FOUR.step(FOUR.plan(*each)),
        "(c) Multi-tensor sparsification with tensor fusion": FOUR.step(FOUR.plan(*joint)),
    }


def _fig1_verdicts(figure: Figure, rows: list[Row]) -> list[Verdict]:
    """Return whether the order of the three times is the paper's, and the number of tensors."""
    wfbp, fused, joint = (step.iteration_s for step in _fig1_steps().values())
    holds = joint < fused < wfbp
    said = f"In the example: {figure.finding(rows)}."
    return [
        compared("ssfusion.fig1.tensors", 4, len(FOUR.tensors), decimals=0),
        says("ssfusion.fig1.order", holds, "holds" if holds else "does not hold", said, source="restated"),
    ]


def _fig7_verdicts(figure: Figure, rows: list[Row]) -> list[Verdict]:
    """Return whether there are seven tensors in two buffers, of whose second G3 and G1 stay uncompressed."""
    left = [
        {name for lane in bucket.lanes for one in lane.segments if one.dense for name in one.tensors}
        for bucket in planned("naive").buckets
    ]
    holds = len(EXAMPLE.tensors) == 7 and len(left) == 2 and left[1] == {"3", "1"}
    here = f"{len(EXAMPLE.tensors)} tensors, of buffer 2 excluded: {', '.join(f'G{name}' for name in sorted(left[1]))}"
    said = "Sizes and times of the example are ours, chosen so that Eq. 2 excludes the tensors that the figure names."
    return [says("ssfusion.fig7.tensors", holds, here, said, source="restated")]


FIG1 = Figure(
    "ssfusion.fig1",
    "Fig. 1: three ways to exchange the gradients of four tensors",
    Timelines(_fig1_steps),
    _fig1_verdicts,
)
FIG7 = Figure(
    "ssfusion.fig7",
    "Fig. 7: per-tensor and selective sparsification of seven tensors in two buffers",
    Timelines(
        lambda: {
            "(a) Per-tensor sparsification": EXAMPLE.step(per_tensor()),
            "(b) Selective sparsification (SSFusion)": EXAMPLE.step(planned("naive")),
        }
    ),
    _fig7_verdicts,
)
FIG8 = Figure(
    "ssfusion.fig8",
    "Fig. 8: two ways to move sparsification to the host",
    Timelines(
        lambda: {
            "(a) Sparsification offloading of each tensor": EXAMPLE.step(per_tensor("host")),
            "(b) Selective offloading (SSFusion-O)": EXAMPLE.step(planned("o")),
        }
    ),
)
FIG10 = Figure(
    "ssfusion.fig10",
    "Fig. 10: All-Gather alone, and interleaved All-Reduce and All-Gather",
    Timelines(
        lambda: {
            "(a) All-Gather": EXAMPLE.step(planned("naive")),
            "(b) Interleaved All-Reduce and All-Gather (SSFusion-I)": EXAMPLE.step(planned("i")),
        }
    ),
)


# ---- Fig. 3: two tensors of four elements, each compressed on its own, and both together -----------------------------

TENSORS = {"G2": (0.9, 0.5, 0.7, 0.8), "G1": (0.2, 0.4, 0.1, 0.3)}
"""Magnitudes, invented: every element of G2 is larger than any of G1."""
DENSITY = 0.25
COLOURS = {"G2": "#0072b2", "G1": "#d55e00"}
Kept = set[tuple[str, int]]
"""Tensor and position of elements."""


def largest(*names: str) -> Kept:
    """Return the elements that are kept when these tensors are compressed together."""
    elements = [(value, name, i) for name in names for i, value in enumerate(TENSORS[name])]
    count = round(DENSITY * len(elements))
    return {(name, i) for _, name, i in sorted(elements, reverse=True)[:count]}


EACH = {kept for name in TENSORS for kept in largest(name)}
JOINT = largest(*TENSORS)


def _counts(kept: Kept) -> list[int]:
    return [sum(name == other for other, _ in kept) for name in TENSORS]


def _fig3(figure: Figure, rows: list[Row]) -> Picture:
    """Return both panels: what is kept is filled, what is not sent is open."""
    canvas, grid = plt.subplots(1, 2, figsize=(2 * COLUMN_IN, 2.1), sharey=True, layout="constrained")
    canvas.suptitle(figure.title, x=0.01, ha="left", fontweight="bold", fontsize=8)
    titles = ("(a) Per-tensor sparsification", "(b) Multi-tensor sparsification")
    for title, kept, axis in zip(titles, (EACH, JOINT), grid, strict=True):
        _toy_panel(axis, title, kept)
    grid[0].set_ylabel("magnitude")
    say_origin(
        canvas, "Computed: the largest 25 % of the elements, of each tensor or of both; magnitudes are invented."
    )
    return canvas, [
        {
            "tensor": name,
            "element": i,
            "magnitude": value,
            "per_tensor": "sent" if (name, i) in EACH else "",
            "multi_tensor": "sent" if (name, i) in JOINT else "",
        }
        for name, values in TENSORS.items()
        for i, value in enumerate(values)
    ]


def _toy_panel(axis: Axes, title: str, kept: Kept) -> None:
    place = 0
    for name, values in TENSORS.items():
        for i, value in enumerate(values):
            full = (name, i) in kept
            colour = COLOURS[name]
            axis.bar(place, value, 0.8, color=colour if full else "white", edgecolor=colour, linewidth=1)
            if full:
                axis.text(place, value + 0.02, "sent", ha="center", va="bottom", fontsize=6.5)
            place += 1
        place += 1
    names = [
        name if count else f"{name}\n(nothing is sent)" for name, count in zip(TENSORS, _counts(kept), strict=True)
    ]
    axis.set_xticks([1.5, 6.5], names)
    axis.set_ylim(0, 1.05)
    axis.set_title(title, loc="left")


def _fig3_verdicts(figure: Figure, rows: list[Row]) -> list[Verdict]:
    """Return verdicts on the toy and on what is kept of it."""
    elements = sum(map(len, TENSORS.values()))
    return [
        compared("ssfusion.fig3.elements", 8, elements, decimals=0),
        compared("ssfusion.fig3.density", 0.25, DENSITY, decimals=2),
        compared("ssfusion.fig3.per", 1, min(_counts(EACH)), decimals=0, source="restated"),
        compared("ssfusion.fig3.multi", 0, _counts(JOINT)[1], decimals=0, source="restated"),
    ]


def _fig3_finding(rows: list[Row]) -> str:
    each, joint = (" and ".join(map(str, _counts(kept))) for kept in (EACH, JOINT))
    return f"elements kept of G2 and G1: {each} each on its own, {joint} together"


FIG3 = Figure(
    "ssfusion.fig3",
    "Fig. 3: a small tensor vanishes where tensors are compressed together",
    _fig3,
    _fig3_verdicts,
    said=_fig3_finding,
)


# ---- Fig. 6: the parts of the framework, each with the module of ssfx that does it -----------------------------------

SEARCH = "ssfx/schemes/search"
GREY = "#e3e3e3"
PARTS = (
    ("Profiling", "backward time per tensor,\ncosts of compressors and links", "ssfx/{runtime,calibration}", GREY),
    ("Fusion buffers", "contiguous groups of\nshortest predicted step", f"{SEARCH}/exact_groups.py", GREY),
    (
        "Selective sparsification",
        "small tensors stay dense,\nlarge ones get a lower density",
        f"{SEARCH}/ssfusion_selection.py",
        "#bfe0f5",
    ),
    ("SSFusion-O", "large tensors are compressed\non the host", f"{SEARCH}/ssfusion_selection.py", "#8cc8ee"),
    ("SSFusion-I", "All-Reduce of dense tensors\nbetween All-Gathers", f"{SEARCH}/ssfusion_buffers.py", "#56b4e9"),
    ("Training", "the plan, executed step by step\n(or simulated)", "ssfx/{runtime,simulator}", GREY),
)
"""What a part is called in the paper, what it does, where it is here, and its colour."""


def _fig6(figure: Figure, rows: list[Row]) -> Picture:
    """Return the parts as boxes in the order in which they work."""
    canvas = plt.figure(figsize=(2 * COLUMN_IN, 2.5))
    axis = canvas.add_axes((0, 0, 1, 1))
    axis.set_axis_off()
    axis.set(xlim=(0, 3), ylim=(2.5, 0))
    axis.text(0.03, 0.12, figure.title, fontweight="bold", fontsize=8, va="center")
    for number, part in enumerate(PARTS):
        _part(axis, number, part)
    said = "A diagram: nothing is measured. Arrows: what works on the outcome of what."
    axis.text(0.03, 2.42, said, va="center", **ORIGIN_LINE)
    return canvas, [
        {"part": name, "does": does.replace("\n", " "), "module": module} for name, does, module, _ in PARTS
    ]


def _part(axis: Axes, number: int, part: tuple[str, str, str, str]) -> None:
    from matplotlib.patches import FancyBboxPatch

    name, does, module, colour = part
    column, line = number % 3, number // 3
    left, top = column + 0.05, 0.3 + 1.05 * line
    box = FancyBboxPatch(
        (left, top), 0.82, 0.8, boxstyle="round,pad=0.01,rounding_size=0.03", facecolor=colour, linewidth=0
    )
    axis.add_patch(box)
    middle = left + 0.41
    axis.text(middle, top + 0.17, name, ha="center", va="center", fontweight="bold", fontsize=7.5)
    axis.text(middle, top + 0.42, does, ha="center", va="center", fontsize=6.5, linespacing=1.3)
    axis.text(middle, top + 0.69, module, ha="center", va="center", fontsize=5.2, family="monospace", color="#444444")
    look = {"arrowstyle": "-|>", "color": "#333333", "linewidth": 1}
    if column < 2:
        axis.annotate("", (left + 0.99, top + 0.4), (left + 0.84, top + 0.4), arrowprops=look)
    elif line == 0:
        axis.annotate("", (0.46, top + 1.03), (left + 0.41, top + 0.83), arrowprops=look)


FIG6 = Figure(
    "ssfusion.fig6",
    "Fig. 6: overview of SSFusion, and where its parts are in ssfx",
    _fig6,
    said=lambda _: f"in this order: {', '.join(name for name, *_ in PARTS)}",
)
