"""Workloads: the models, the data sets and the training loop that one worker runs. Importing this needs no torch."""

from ssfx.workloads.base import Dataset, Model, datasets, models
from ssfx.workloads.checks import check_case

__all__ = ["Dataset", "Model", "check_case", "datasets", "models"]
