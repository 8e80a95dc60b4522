"""The best way to cut the backward order into a given number of jointly compressed groups: exact, one more at a time.

It is the dynamic program V[k][j] of D-49 with the partial solutions of `fusion_search`, so it
is exact for curves of any shape too. Where the number of groups is free, that search is faster.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ssfx.core.lazy import numpy as np
from ssfx.schemes.search.exact_groups import TICK_S, Fusion, candidate_cuts, pair_costs, undominated

if TYPE_CHECKING:
    from ssfx.schemes.search.contiguous_groups import Seconds
    from ssfx.schemes.search.exact_groups import Array, Ints


def best_by_count(
    gap_s: Sequence[float], numel: Sequence[int], *, encode: Seconds, decode: Seconds, message: Seconds
) -> Iterator[Fusion]:
    """Yield the best grouping into exactly 1, 2, 3, ... groups, as many as the cuts of `best_fusion` allow.

    Partial solutions of k groups extend those of k - 1; only equal counts are compared, so no bound drops any. With
    affine curves every cut has a single one and this is V[k][j] (D-49).
    """
    cuts = candidate_cuts(np.asarray(gap_s, dtype=float), np.asarray(numel, dtype=float))
    ready_s = np.concatenate([[0.0], np.cumsum(gap_s)])[cuts]
    total = np.concatenate([[0], np.cumsum(numel, dtype=np.int64)])[cuts]
    encode_s, decode_s, message_s = pair_costs(total, encode, decode, message)
    last = len(cuts) - 1
    p, q, cut = np.zeros(1), np.zeros(1), np.zeros(1, dtype=np.int64)
    layers: list[tuple[Ints, Ints]] = [(cut, cut)]  # of every layer's labels: the cut, the parent in the layer before
    for num_groups in range(1, last + 1):
        grown: list[tuple[Array, Array, Ints, Ints]] = []
        for j in range(num_groups, last + 1):
            before = int(np.searchsorted(cut, j))
            at = cut[:before]
            taken_s = encode_s[j, at], decode_s[j, at]
            new_p = np.maximum(p[:before], ready_s[j] + q[:before] + taken_s[0]) + taken_s[1] + message_s[j, at]
            new_q = q[:before] + taken_s[0] + taken_s[1]
            keep = undominated(new_p, new_q, np.zeros(before, dtype=np.int64))
            grown.append((new_p[keep], new_q[keep], np.full(len(keep), j), keep))
        p, q, cut, parent = (np.concatenate(column) for column in zip(*grown, strict=True))
        layers.append((cut, parent))
        ends = np.flatnonzero(cut == last)
        label = int(ends[np.argmin(np.rint(p[ends] / TICK_S))])
        total_s, stops = float(p[label]), []
        for layer_cut, layer_parent in layers[:0:-1]:
            stops.append(int(cuts[layer_cut[label]]))
            label = int(layer_parent[label])
        yield Fusion(tuple(stops[::-1]), total_s)
