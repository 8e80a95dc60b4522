"""A training script as a user writes it: no clean-up at the end. Arguments: store file, rank, scheme, fine | broken."""

import os
import sys

import torch
import torch.distributed as dist

import ssfx

store, rank, scheme, ending = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
os.environ["GLOO_SOCKET_IFNAME"] = "lo"
torch.set_num_threads(1)
dist.init_process_group("gloo", store=dist.FileStore(store, 2), rank=rank, world_size=2)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
ssfx.attach(model, optimizer, scheme=scheme)


def fail(gradient: torch.Tensor) -> None:
    raise ValueError("this backward pass is broken")


for step in range(8):
    optimizer.zero_grad()
    loss = model(torch.randn(16, 8)).square().mean()
    if ending == "broken" and rank == 0 and step == 5:
        model[0].weight.register_hook(fail)
    loss.backward()
    optimizer.step()
print("done")
