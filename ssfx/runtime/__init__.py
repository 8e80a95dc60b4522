"""The real executor: a plan on real gradients."""
