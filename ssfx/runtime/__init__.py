"""The real executor: a plan on real gradients over torch.distributed."""
