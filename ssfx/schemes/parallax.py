"""Parallax: embedding tables travel by the rows that a batch touched, everything else as in DDP."""

from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Annotated

from ssfx.collectives import collectives
from ssfx.core.errors import ConfigError
from ssfx.planning.costs import Costs
from ssfx.planning.plan import Bucket, Lane, Plan, Segment, TensorSpec
from ssfx.planning.profile import Profile
from ssfx.schemes.base import DenseOptions, scheme
from ssfx.schemes.search.byte_groups import BUCKET_CAP_BYTES, FIRST_BUCKET_BYTES, cap_groups, plan_per_dtype
from ssfx.schemes.transport import dense_transport


@dataclass(frozen=True, kw_only=True)
class ParallaxOptions(DenseOptions):
    """`tables`: patterns of parameter names, separated by "|"; matrices that match travel by rows.

    `touched` is the share of a table's rows that one rank is expected to touch in a step; it decides predicted times,
    nothing else. `compressor` is for the other tensors.
    """

    tables: str = "*emb*|*wte*|*wpe*|*encoder.weight"
    touched: Annotated[float, "(0, 1]"] = 0.1


@scheme(
    "parallax",
    summary="embedding tables by touched rows through their owners, the rest in DDP's dense buckets",
    source="Kim et al. 2019 (Parallax); D-39",
    defaults=ParallaxOptions(),
    fusion_unit="bucket",
    collectives=("row_sparse", "all_reduce"),
    compressors="additive",
)
def plan_parallax(profile: Profile, costs: Costs, options: ParallaxOptions) -> Plan:
    """Return the dense plan with a lane for each table; the notes say so if there is none.

    A table whose rows are all touched, such as one tied to the output layer, is summed as exactly but costs more than
    in an all-reduce; leave it out of `tables`.
    """
    transport = dense_transport("parallax", options.compressor)
    patterns = options.tables.split("|")

    def is_table(spec: TensorSpec) -> bool:
        named = any(fnmatchcase(spec.name, pattern) for pattern in patterns)
        return named and len(spec.shape) == 2 and spec.numel > 0 and costs.world_size > 1

    tables = [spec for spec in profile.tensors if is_table(spec)]
    if options.compressor is not None and len(tables) == len(profile.tensors):
        raise ConfigError(
            f"scheme=parallax with compressor={options.compressor}: every tensor is one of the tables, which travel as "
            "they are; drop the compressor, or narrow tables"
        )

    def buckets(part: Profile) -> list[Bucket]:
        rest = [spec for spec in part.tensors if not is_table(spec)]
        groups = cap_groups([spec.nbytes for spec in rest], FIRST_BUCKET_BYTES, BUCKET_CAP_BYTES)
        dense = [Bucket((transport.lane([tuple(rest[group.start : group.stop])]),)) for group in groups]
        return dense + [_table_bucket(spec, options) for spec in part.tensors if is_table(spec)]

    plan = plan_per_dtype("parallax", profile, costs.world_size, buckets)
    if tables or costs.world_size == 1:
        return plan
    return replace(plan, notes=(("tables", f"no matrix matches {options.tables}, so all tensors are dense"),))


def _table_bucket(spec: TensorSpec, options: ParallaxOptions) -> Bucket:
    rows = collectives.canonical("row_sparse", {"width": spec.shape[1], "touched": options.touched})
    return Bucket((Lane(rows, (Segment((spec.name,)),)),))
