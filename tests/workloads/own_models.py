"""Networks of a few thousand parameters for every kind of data, as a user would write them."""

import torch
from torch import nn


def images() -> nn.Module:
    return nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Dropout(0.1), nn.Linear(48, 32), nn.Linear(32, 100))


def reader() -> nn.Module:
    from ssfx.lab.workloads.nets.hugging_face import bert_qa

    return bert_qa(width=16, layers=1, heads=2, vocabulary=400)


def pretrained() -> nn.Module:
    from ssfx.lab.workloads.nets.hugging_face import bert_pretraining

    return bert_pretraining(width=16, layers=1, heads=2, vocabulary=400)


def language() -> nn.Module:
    from ssfx.lab.workloads.nets.recurrent import LstmLm

    return LstmLm(vocabulary=400, embedding=16, hidden=16, layers=1, dropout=0.1)


def translator() -> nn.Module:
    from ssfx.lab.workloads.nets.recurrent import Gnmt

    return Gnmt(vocabulary=403, width=8, layers=2, dropout=0.1)


def small() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(12, 20), nn.ReLU(), nn.Linear(20, 3))


small.sample = (3, 2, 2)
small.num_values = 3
small.batch_size = 5
small.optimizer = "adam"


def silent() -> nn.Module:
    return nn.Linear(2, 2)


def broken() -> nn.Module:
    raise ValueError("no such layer")


def text() -> str:
    return "no network"


def squares(train: bool) -> torch.utils.data.Dataset:
    generator = torch.Generator().manual_seed(int(train))
    inputs = torch.randn(40 if train else 10, 3, 2, 2, generator=generator)
    return torch.utils.data.TensorDataset(inputs, inputs.flatten(1)[:, :3].argmax(1))
