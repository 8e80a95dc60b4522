"""Quality as the field computes it: every metric is a quotient of sums, so that ranks may score a share each."""
