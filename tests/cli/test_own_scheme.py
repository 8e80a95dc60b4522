"""A scheme of the user's own that sends by two compressors: planned, priced and held to what it declares."""

import sys
from pathlib import Path

from processes import finished

SCHEME = '''
from dataclasses import dataclass
from ssfx.planning.plan import Bucket
from ssfx.schemes.base import CompressOptions, scheme
from ssfx.schemes.transport import Transport, dense_transport
from ssfx.schemes.search.byte_groups import plan_per_dtype, units

@dataclass(frozen=True, kw_only=True)
class Options(CompressOptions):
    """`above`: tensors of more elements are factored."""
    compressor: str = "powersgd(rank=8)"
    above: int = 1_000_000

@scheme("mixed_test", summary="two ways", source="a test", defaults=Options(), fusion_unit="bucket",
        collectives=("all_reduce",), compressors="powersgd")
def plan_mixed(profile, costs, options):
    """Return large tensors factored, the rest in one message of 16 bits."""
    def buckets(part):
        large = tuple(spec for spec in part.tensors if spec.numel > options.above)
        rest = tuple(spec for spec in part.tensors if spec.numel <= options.above)
        factors, halves = Transport(options.compressor, 1.0, "all_reduce"), dense_transport("mixed_test", "fp16")
        return [Bucket((factors.lane([unit]),)) for unit in units(large)] + [Bucket((halves.lane([rest]),))]
    return plan_per_dtype("mixed_test", profile, costs.world_size, buckets)
'''


def test_a_scheme_of_two_compressors_has_a_price_and_keeps_to_those_that_it_declares(tmp_path: Path) -> None:
    """In processes of their own: what a plug-in registers stays registered."""
    (tmp_path / "mixed.py").write_text(SCHEME)
    words = ["plan", "--plugin", "mixed.py", "scheme=mixed_test", "model=resnet50", "cluster=64gpu"]
    planned, refused = (
        finished([sys.executable, "-m", "ssfx", *words, *more], cwd=tmp_path) for more in ([], ["compressor=topk"])
    )
    assert "predicted F = " in planned.stdout, planned.stderr
    assert {line.split()[6] for line in planned.stdout.splitlines() if " all_reduce " in line} == {
        "powersgd(rank=8)",
        "fp16",
    }
    assert (refused.returncode, "it takes powersgd only" in refused.stderr) == (2, True)
