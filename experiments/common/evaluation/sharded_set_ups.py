"""Set-ups of experiment=edition2026 where whole models do not fit: FSDP2 and HSDP are the dense baselines there."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.common.evaluation.set_ups import CheckedPlace, counted, grouped, place_of
from ssfx.core.rows import Row


def sharded_places(rows: Sequence[Row]) -> list[CheckedPlace]:
    """Return the places where no whole model fits and sharded dense training does; the best of that is `dense_s`."""
    whole = {
        key for key, group in grouped([row for row in rows if row.case.sharding == "none"]).items() if place_of(group)
    }
    sharded = grouped([row for row in rows if row.case.sharding != "none"])
    found = [place_of(group) for key, group in sharded.items() if key not in whole]
    return [one for one in found if one is not None]


def sharded_sentence(rows: Sequence[Row]) -> str:
    """Return what holds where models fit in shards only, in a sentence; "" without such rows."""
    found = sharded_places(rows)
    if not found:
        return ""
    whole = counted(found)
    return (
        f"Where a model fits in shards only ({len(found)} places), {whole.faster:,} of {whole.set_ups:,} "
        f"configurations have a shorter step than the best of FSDP2 and HSDP by their times, and {whole.known:,} "
        "of those a quality that is not unknown; no sharded step was ever checked on GPUs, so that none surely pays"
    )
