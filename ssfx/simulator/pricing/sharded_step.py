"""One step of a model of `fully_shard` as tasks: gathers of weights, sums over shards and replicas, step on shards.

What torch does, and so what is modelled (torch 2.14, `_fsdp_param_group.py`):

* In forward a block's gather starts when the block two before it was copied out of what was gathered: while the block
  before it computes. In backward one is gathered ahead: when the block that is then computed was copied out.
* A gradient is copied into the message when its block is done, once the message before it was reduced: torch keeps one.
* The root is gathered first, is not gathered again for backward, and is reduced last.
* Of several passes every one sums over shards, and the last over replicas, too (set_requires_all_reduce).
* Exchanges of one communicator follow each other in the order of their issue. Those of replicas have another one: where
  they take other links, both are under way at a time. What compresses runs in a stream of its own beside backward.
* On hosts an exchange holds up the training thread.

A sum travels as torch's reduce-scatter where all of it is dense, and a gather as torch's all-gather. Else every rank
sends every other a row, laid out as the message of a lane: its chunk of a sum, or its shards of the weights. Where a
lane says which ranks share a node, chunks are summed there first, and rows go to the ranks of equal local index alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ssfx.collectives.primitives import Traffic, to_peers, traffic
from ssfx.core.spec import Spec, name_of
from ssfx.planning.plan import ITEM_BYTES, Lane, Plan
from ssfx.planning.profile import Profile
from ssfx.planning.sharding import ShardedPlan, Sharding, Unit, block_of
from ssfx.simulator.pricing.message_sizes import lane_bytes
from ssfx.simulator.pricing.task import Resource, Stage, Task

_ALIGNED = 4  # typed views of a received row need it


def is_native(lane: Lane) -> bool:
    """Return whether a sum over shards or a gather of weights is torch's own."""
    return all(segment.dense for segment in lane.segments)


def ranks_per_node(lane: Lane) -> int:
    """Return how many neighbours by rank sum the chunks of a lane before they are compressed; 1: none do."""
    return int(Spec.parse(lane.collective).options.get("ranks_per_node", 1))


def row_bytes(plan: Plan, lane: Lane) -> int:
    """Return the bytes that a rank sends to each other one for a lane that is compressed."""
    return -(-lane_bytes(plan, lane) // _ALIGNED) * _ALIGNED


def handed_over(plan: Plan, lane: Lane) -> int:
    """Return the bytes that a rank brings to a sum over shards, its own chunk among them, or to a gather of weights.

    Of chunks that are summed inside nodes first: what it brings to the sum between nodes.
    """
    rows = 1 if lane.collective == "all_gather" else plan.world_size // ranks_per_node(lane)
    return rows * (plan.numel(lane) * _item_bytes(plan, lane) if is_native(lane) else row_bytes(plan, lane))


def shard_traffic(plan: Plan, lane: Lane, rank: int = 0) -> Traffic:
    """Return what a rank sends for a sum over shards, or for a gather of weights."""
    whole = _item_bytes(plan, lane) if is_native(lane) else row_bytes(plan, lane)
    size, name = ranks_per_node(lane), name_of(lane.collective)
    node, local = divmod(rank, size)
    across = traffic(name, handed_over(plan, lane), plan.world_size // size, node if size > 1 else rank, whole)
    return across + to_peers([summed_inside(plan, lane)] * size, local)


def summed_inside(plan: Plan, lane: Lane) -> int:
    """Return the bytes that a rank sends each neighbour in its node: chunks for all nodes, as torch reduces them."""
    return plan.world_size // ranks_per_node(lane) * plan.numel(lane) * _item_bytes(plan, lane)


def _item_bytes(plan: Plan, lane: Lane) -> int:
    return ITEM_BYTES[plan.by_name[lane.tensors[0]].dtype]


def gathered_bytes(found: ShardedPlan) -> list[int]:
    """Return the bytes that a rank brings to one gather of each group's weights: its shards with their padding."""
    sharding = found.sharding
    if found.weights is None:
        return [unit.shard_numel(sharding.shards) * ITEM_BYTES[sharding.gather_dtype] for unit in found.units]
    sizes = [0] * len(found.units)
    for (bucket, _), lane in found.weights.lanes():
        sizes[found.of_weights[bucket]] += handed_over(found.weights, lane)
    return sizes


@dataclass(frozen=True)
class Part:
    """A part of a sum, in its order: seconds of a stage on what compresses, or of an exchange; fields as of Task."""

    stage: Stage
    name: str
    work_s: float
    demand: float = 1.0
    wire_s: float = 0.0


@dataclass(frozen=True)
class UnitCosts:
    """What one group takes: a gather, the sum over shards and that over replicas, in seconds."""

    gather: Sequence[Part]
    over_shards: Sequence[Part]
    over_replicas: Sequence[Part]


@dataclass(frozen=True)
class Machine:
    """What a rank is, besides exchanges.

    copy_s_per_byte: of copying weights out of what was gathered, and gradients into what is reduced. holds_up: an
    exchange holds up the training thread. apart: replicas exchange over other links than shards. lane_s: issuing one.
    """

    copy_s_per_byte: float
    lane_s: float
    holds_up: bool
    apart: bool


class ShardedLowering:
    """Makes the tasks of one step of a sharded model; `costs` are those of `units`, the root first."""

    def __init__(
        self, profile: Profile, sharding: Sharding, units: Sequence[Unit], costs: Sequence[UnitCosts], machine: Machine
    ) -> None:
        self.profile, self.sharding, self.units, self.costs = profile, sharding, units, costs
        self.machine = machine
        self.tasks: list[Task] = []
        number = {unit.name: i for i, unit in enumerate(units)}
        self._runs = [(number[name], gap_s) for name, gap_s in _runs(profile)]
        self._root = number.get("")
        self._held_up: tuple[int, ...] = ()
        """What the next task of the training thread waits for besides: an exchange, on hosts."""
        self._in_message: tuple[int, ...] = ()
        """The latest sum over shards, whose message torch keeps until it has ended."""
        self._reduced: list[int] = []

    def step(self, accumulate: int, finish_s: float) -> list[Task]:
        """Return the tasks of a step of `accumulate` passes: each sums over shards, the last over replicas, too."""
        for micro in range(accumulate):
            self._backward(self._forward(), last_pass=micro == accumulate - 1)
        self._device("step", "step", self.profile.step_s / self.sharding.shards, tuple(self._reduced))
        self._device("other", "other", self.profile.other_s)
        self._device("other", "bookkeeping", finish_s)
        return self.tasks

    # ---- both passes ------------------------------------------------------------------------------------------------

    def _forward(self) -> set[int]:
        """Add a forward pass; return the groups whose weights are whole after it."""
        backward_s = self.profile.backward_s
        speed = self.profile.forward_s / backward_s if backward_s else 0.0
        copies: dict[int, int] = {}
        for number, gap_s in reversed(self._runs):
            for needed in (self._root, number):  # the root is gathered first, even if it computes later
                if needed is not None and needed not in copies:
                    two_before = tuple(copies.values())[-2:-1]
                    copies[needed] = self._copy_out(needed, self._gather(needed, two_before))
            self._device("forward", self._name(number), gap_s * speed)
        if not self.sharding.reshard_after_forward:
            return set(copies)
        return set() if self._root is None else {self._root}

    def _backward(self, kept: set[int], last_pass: bool) -> None:
        """Add a backward pass and its sums; weights of the groups in `kept` are whole already."""
        order = [number for number in dict.fromkeys(number for number, _ in self._runs) if number not in kept]
        last = {number: at for at, (number, _) in enumerate(self._runs)}
        ahead: dict[int, int] = {}
        copied: list[int] = []
        for at, (number, gap_s) in enumerate(self._runs):
            if number in order and number not in copied:
                gather = ahead.get(number)
                self._copy_out(number, self._gather(number, ()) if gather is None else gather)
                copied.append(number)
            if not at or copied[-1:] == [number]:
                later = next((one for one in order if one not in copied and one not in ahead), None)
                if later is not None:
                    ahead[later] = self._gather(later, (self._latest_of_device(),))
            self._device("backward", self._name(number), gap_s)
            if last[number] == at and number != self._root:
                self._reduce(number, last_pass)
        if self._root is not None:
            self._reduce(self._root, last_pass)

    # ---- one group --------------------------------------------------------------------------------------------------

    def _gather(self, number: int, after: tuple[int, ...]) -> int:
        """Add the gather of a group's weights; return its end."""
        for part in self.costs[number].gather:
            after = (self._part(part, after, "network", "gather_stream"),)
        return after[0]

    def _copy_out(self, number: int, gather: int) -> int:
        nbytes = self.units[number].numel * ITEM_BYTES[self.sharding.gather_dtype]
        return self._device("other", f"copy out {self._name(number)}", self._copied_s(nbytes), (gather,))

    def _reduce(self, number: int, last_pass: bool) -> None:
        """Add the sums of a group's gradients, over shards and, in the last pass, over replicas."""
        unit, costs, name = self.units[number], self.costs[number], self._name(number)
        read, written = ITEM_BYTES[self.sharding.gather_dtype], ITEM_BYTES[self.sharding.reduce_dtype]
        copied_s = self._copied_s(unit.numel * (read + written) / 2)
        done = self._device("other", f"copy in {name}", copied_s, self._in_message)
        for part in costs.over_shards:
            done = self._part(part, (done,), "network", "reduce_stream")
        self._in_message = (done,)
        for part in costs.over_replicas if last_pass else ():
            done = self._part(part, (done,), "replicas" if self.machine.apart else "network", "replica_stream")
        stream: Resource = "replica_stream" if self.sharding.replicas > 1 else "reduce_stream"
        shard_s = self._copied_s(unit.shard_numel(self.sharding.shards) * (written + 4) / 2)
        done = self._part(Part("other", f"gradients of {name}", shard_s), (done,), "network", stream)
        self._reduced.append(done)

    def _part(self, part: Part, after: tuple[int, ...], network: Resource, stream: Resource) -> int:
        if part.stage == "exchange":
            return self._exchange(part, network, after)
        if self.machine.holds_up:
            return self._device(part.stage, part.name, part.work_s, after)
        return self._add(Task(part.stage, part.name, stream, part.work_s, part.demand, after))

    def _exchange(self, part: Part, network: Resource, after: tuple[int, ...]) -> int:
        if not self.machine.holds_up:
            return self._add(Task("exchange", part.name, network, part.work_s, part.demand, after, wire_s=part.wire_s))
        issued = self._device("other", f"issue {part.name}", self.machine.lane_s)
        after = (*after, issued)
        done = self._add(Task("exchange", part.name, network, part.work_s, part.demand, after, wire_s=part.wire_s))
        self._held_up = (done,)
        return done

    # ---- tasks ------------------------------------------------------------------------------------------------------

    def _device(self, stage: Stage, name: str, work_s: float, after: tuple[int, ...] = ()) -> int:
        after, self._held_up = (*after, *self._held_up), ()
        return self._add(Task(stage, name, "device", work_s, 1.0, after))

    def _add(self, task: Task) -> int:
        self.tasks.append(task)
        return len(self.tasks) - 1

    def _latest_of_device(self) -> int:
        return max(position for position, task in enumerate(self.tasks) if task.resource == "device")

    def _copied_s(self, nbytes: float) -> float:
        return self.machine.copy_s_per_byte * nbytes

    def _name(self, number: int) -> str:
        return self.units[number].name or "root"


def _runs(profile: Profile) -> list[tuple[str, float]]:
    """Return the groups in the order of backward, each as often as it is come back to, with its seconds there."""
    runs: list[tuple[str, float]] = []
    for spec, gap_s in zip(profile.tensors, profile.ready_gap_s, strict=True):
        name = block_of(spec.name)
        if runs and runs[-1][0] == name:
            runs[-1] = name, runs[-1][1] + gap_s
        else:
            runs.append((name, gap_s))
    return runs
