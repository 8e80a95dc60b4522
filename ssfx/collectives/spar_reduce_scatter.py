"""SparDL: reduce-scatter and all-gather of sparse blocks that are selected again at every hop, so they never grow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

from ssfx.collectives.base import Load, Phase, collectives, merging
from ssfx.collectives.pairs import Entries, Records, poisoned, record_bytes, take_largest
from ssfx.collectives.primitives import Traffic, bruck_gather, bruck_rounds, rounds
from ssfx.collectives.reducer import Reduced, Reducer, Reduction, State
from ssfx.core.errors import ConfigError
from ssfx.core.lazy import torch
from ssfx.core.spec import Bounded

if TYPE_CHECKING:
    from ssfx.collectives.comm import Comm


def scatter_rounds(members: int) -> list[tuple[int, int]]:
    """Return (distance, blocks) of each round of the reduce-scatter; blocks add up to members - 1.

    In a round of distance D member w sends blocks w + D, w + D + 1, ... to member w + D (all modulo `members`), in one
    message. So what a member has for block j travels along the binary digits of j - w, the high ones first, and reaches
    member j once.
    """
    steps = (members - 1).bit_length()
    distances = [1 << step for step in reversed(range(steps))]
    return [(distance, min(distance, members - distance)) for distance in distances]


@dataclass(frozen=True, slots=True)
class Share:
    """How many entries a rank brings to Bruck's gather across teams (h), and how that number moves.

    `step` is the next move, `sped` that the last one went the right way and the next may be twice as long.
    """

    entries: int
    step: int
    sped: bool = False

    @classmethod
    def start(cls, budget: int, teams: int) -> Share:
        """Return the first one: what fills `budget` if no two teams have an index in common."""
        least = least_share(budget, teams)
        return cls(least, max(1, (budget - least) // 100))

    def after(self, found: int, budget: int, teams: int) -> Share:
        """Return the next one when `found` distinct indices came together: more if there was room, fewer if not."""
        if (found > budget) != (self.step > 0):
            step, sped = (2 * self.step, False) if self.sped else (self.step, True)
        else:
            step, sped = (_half(-self.step) if abs(self.step) > 1 else -self.step), False
        return Share(max(self.entries + step, least_share(budget, teams)), step, sped)

    def within(self, budget: int, teams: int) -> Share:
        """Return it with no more entries than `budget`, and no move longer than the whole way between the bounds.

        The released code bounds neither: while there is room, steps would double without end.
        """
        least = least_share(budget, teams)
        longest = max(1, budget - least)
        entries = min(max(self.entries, least), budget)
        return replace(self, entries=entries, step=min(max(self.step, -longest), longest))


def least_share(budget: int, teams: int) -> int:
    """Return the lower bound of a share: budget / teams, but one entry if any may be sent."""
    return min(budget, max(1, budget // teams))


def _half(step: int) -> int:
    return step // 2 if step > 0 else -(-step // 2)


@dataclass(frozen=True)
class SparReduceScatterOptions(Bounded):
    """`teams`: how many teams of equal size the ranks form.

    A power of two of teams exchange with one partner after another, twice as many each time; any other number gathers
    shares of adaptive size.
    """

    teams: Annotated[int, 1] = 1

    @property
    def recursive(self) -> bool:
        """True when teams exchange with one partner after another."""
        return self.teams & (self.teams - 1) == 0


@collectives.register(SparReduceScatterOptions())
class SparReduceScatter(Reducer):
    """About k elements of the sum in 2 log2 P messages; each rank adds up one block (D-33).

    Rank team * Q + w holds block w of Q. Every message holds records of a fixed capacity: kept / Q entries a block, at
    least one, so that tiny vectors make progress. Residuals are collected globally: where the result has an element, a
    rank keeps what stayed behind on its hop, elsewhere all that it had.
    """

    name = "spar_reduce_scatter"
    summary = "sparse reduce-scatter and all-gather with selection at every hop, optionally in teams"
    source = "SparDL, Zhao et al. 2024; D-33"
    selects = True
    rules = ("topk",)
    state_names = ("share",)
    options: SparReduceScatterOptions

    def team_size(self, world_size: int) -> int:
        """Return the ranks of one team; ConfigError when teams cannot be equal."""
        teams: int = self.options.teams
        if world_size % teams:
            nearest = min((d for d in range(1, world_size + 1) if world_size % d == 0), key=lambda d: abs(d - teams))
            raise ConfigError(f"{self.name}: {world_size} ranks do not form {teams} equal teams; use teams={nearest}")
        return world_size // teams

    def initial_state(self, numel: int, world_size: int) -> State:
        """Return the `Share` of Bruck's gather as entries, step, sped (0 or 1); all zero until the first step."""
        return {"share": torch.zeros(3, dtype=torch.int64)}

    def phases(self, load: Load) -> tuple[Phase, ...]:
        """Return the messages of a rank, with the first share: teams whose indices do not overlap.

        Computed on the way: what each message brings is added up, and the blocks of the next one are selected again;
        the selection before the first message is the compressor call before the exchange.
        """
        members = self.team_size(load.world_size)
        budget = _budget(load.kept, members)
        share = Share.start(budget, self.options.teams).entries
        block, found = load.numel / members, list[Phase]()
        blocks = [count for _, count in scatter_rounds(members)]
        blocks += [1] * (len(self._until_known(members, budget, share)) - len(blocks))
        for size, count, following in zip(
            self._until_known(members, budget, share), blocks, [*blocks[1:], 1], strict=True
        ):
            found += [Phase("send", size), merging(load, count * budget), Phase("encode", following * block)]
        return (*found, *(Phase("send", size) for size in _gather(members, budget)))

    def _until_known(self, members: int, budget: int, share: int) -> list[int]:
        """Return the bytes of the messages after which every rank has heard of every other, and so of a bad one."""
        teams = self.options.teams
        scatter = [count * record_bytes(budget) for _, count in scatter_rounds(members)]
        if self.options.recursive:
            return scatter + [record_bytes(budget)] * rounds(teams)
        return scatter + [count * record_bytes(share) for _, count in bruck_rounds(teams)]

    def _share(self, state: torch.Tensor, budget: int) -> Share:
        """Return how much to bring to the gather across teams: all of the budget unless Bruck's adapts it."""
        if self.options.recursive:
            return Share(budget, 0)
        entries, step, sped = state.tolist()
        known = Share(entries, step, bool(sped)) if step else Share.start(budget, self.options.teams)
        return known.within(budget, self.options.teams)

    def reduce(self, work: Reduction, comm: Comm) -> Reduced:
        """Scatter within the team, combine across teams, gather within the team; settle the residual."""
        teams, members = self.options.teams, self.team_size(comm.world_size)
        team, own = divmod(comm.rank, members)
        numel, budget = work.vector.numel(), _budget(work.kept, members)
        rest = torch.zeros(members, -(-numel // members), dtype=torch.float32, device=work.vector.device)
        if not work.bad:
            rest.view(-1)[:numel] = work.vector
        records, sent = Records(comm, work.bad), 0

        for distance, count in scatter_rounds(members):
            leaving = [take_largest(rest[(own + distance + x) % members], budget) for x in range(count)]
            sent += sum(len(indices) for indices, _ in leaving)
            there, back = (own + distance) % members, (own - distance) % members
            arrived = records.swap(team * members + there, leaving, team * members + back, count, budget)
            for x, (indices, values) in enumerate(arrived):
                rest[(own + x) % members, indices] += values

        share = self._share(work.state["share"], budget)
        block = take_largest(rest[own], share.entries)
        sent += len(block[0])
        ranks = range(own, comm.world_size, members)
        if self.options.recursive:
            block = _doubled(records, block, ranks, team, rest[own], budget)
        else:
            block, found = _gathered(records, block, ranks, team, rest[own], budget, share.entries)
            following = share.after(found, budget, teams).within(budget, teams)
            work.state["share"].copy_(torch.tensor([following.entries, following.step, following.sped]))

        used = _total(self._until_known(members, budget, share.entries))
        if records.bad:
            return poisoned(work.vector, used)
        blocks = bruck_gather(block, own, members, records.among(lambda w: team * members + w, budget))
        indices = torch.cat([part + j * rest.shape[1] for j, (part, _) in enumerate(blocks)])
        values = torch.cat([part for _, part in blocks])
        work.vector[indices] = rest.view(-1)[indices]
        return Reduced(values, indices, sent, used + _total(_gather(members, budget)))


def _budget(kept: int, members: int) -> int:
    """Return the entries of one block's record: at least one, unless nothing is to be kept at all."""
    return min(kept, max(1, kept // members))


def _gather(members: int, budget: int) -> list[int]:
    """Return the bytes of the messages of the final all-gather."""
    return [count * record_bytes(budget) for _, count in bruck_rounds(members)]


def _total(sizes: list[int]) -> Traffic:
    return Traffic(len(sizes), sum(sizes))


def _doubled(
    records: Records, block: Entries, ranks: Sequence[int], team: int, rest: torch.Tensor, budget: int
) -> Entries:
    """Return the largest entries of the sum over teams, exchanged with one partner after another (R-SAG).

    `ranks` are those with the same block, by team. After step s, 2^(s + 1) of them have dropped the same: each keeps
    its share of it in `rest`.
    """
    for step in range(rounds(len(ranks))):
        partner = ranks[team ^ (len(ranks) >> (step + 1))]
        theirs = records.swap(partner, [block], partner, 1, budget)
        block, dropped, _ = _combined([block, *theirs], rest, budget)
        rest += dropped / (2 << step)
    return block


def _gathered(
    records: Records, block: Entries, ranks: Sequence[int], team: int, rest: torch.Tensor, budget: int, share: int
) -> tuple[Entries, int]:
    """Return the same from shares of all teams at once (B-SAG), and how many distinct entries came together."""
    lists = bruck_gather(block, team, len(ranks), records.among(ranks.__getitem__, share))
    block, dropped, found = _combined(lists, rest, budget)
    rest += dropped / len(ranks)
    return block, found


def _combined(lists: list[Entries], like: torch.Tensor, budget: int) -> tuple[Entries, torch.Tensor, int]:
    """Return the `budget` largest entries of the sum of `lists`, what was dropped (dense) and how many there were."""
    total = torch.zeros_like(like)
    for indices, values in lists:
        total[indices] += values
    found = int(total.count_nonzero())
    return take_largest(total, budget), total, found
