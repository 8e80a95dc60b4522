"""Quality as the field computes it: every metric is a quotient of sums, so that ranks may score a share each."""

from ssfx.lab.workloads.metrics.tally import QUALITY, Quality, Tally, better, quality_of

__all__ = ["QUALITY", "Quality", "Tally", "better", "quality_of"]
