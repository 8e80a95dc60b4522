"""A script that attaches before it makes its process group. Arguments: store file, rank, told | untold | step."""

import os
import sys

import torch
import torch.distributed as dist

import ssfx
from ssfx.core.errors import ConfigError

store, rank, case = sys.argv[1], int(sys.argv[2]), sys.argv[3]
os.environ["GLOO_SOCKET_IFNAME"] = "lo"
if case == "told":
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2"}
torch.set_num_threads(1)
torch.manual_seed(rank)
model = torch.nn.Linear(8, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
before = model.weight.detach().clone()
try:
    ssfx.attach(model, optimizer, scheme="topk", density=0.5)
    if case == "step":  # a first step alone, then a group: what is noticed comes with the next step
        optimizer.step()
    dist.init_process_group("gloo", store=dist.FileStore(store, 2), rank=rank, world_size=2)
    model(torch.randn(16, 8)).square().mean().backward()
    optimizer.step()
except ConfigError as error:
    print(error)
    print("moved" if not torch.equal(before, model.weight) else "untouched")
