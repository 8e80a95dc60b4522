"""Workloads: the models, the data sets and the training loop that one worker runs. Importing this needs no torch."""

from ssfx.lab.workloads.base import Dataset, Model, dataset_spec, datasets, models
from ssfx.lab.workloads.checks import check_case

__all__ = ["Dataset", "Model", "check_case", "dataset_spec", "datasets", "models"]
