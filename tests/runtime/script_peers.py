"""A script whose ranks part. Arguments: store (file or port), rank, scheme, case. Prints the one line it ends with.

In every case rank 1 stops first, unless the case says another rank; who waits for it says so.
"""

import gc
import os
import sys
import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

import ssfx
from ssfx.core.errors import SsfxError

where, rank, scheme, case = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
os.environ["GLOO_SOCKET_IFNAME"] = "lo"
torch.set_num_threads(1)
store: Any = (
    dist.TCPStore("127.0.0.1", int(where), 2, rank == 0) if where.isdecimal() else dist.FileStore(where, 2)
)  # the store of a rank goes with it
dist.init_process_group("gloo", store=store, rank=rank, world_size=2, timeout=timedelta(minutes=30))
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
group = dist.new_group(timeout=timedelta(seconds=12)) if case == "late" else None
sync = ssfx.attach(model, optimizer, scheme=scheme, process_group=group)


def train(steps: int) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(16, 8)).square().mean().backward()
        optimizer.step()


def stay() -> None:
    """Live on, without a word to the others, until the test has what it wants."""
    time.sleep(3600)


first = 0 if case.startswith("rank 0") else 1
try:
    if case.startswith("load"):
        if case == "load at once":
            state = sync.state_dict()
        else:
            train(2)
            state = sync.state_dict()
            train(1)
        if rank == 0:
            sync.load_state_dict(state)
        train(2)
    else:
        train(3 if rank == first else 5)
        if rank == first and case == "detach":
            sync.detach()
            print("detached", flush=True)
            stay()
        if rank == first and case == "drop":
            del model, optimizer, sync
            gc.collect()
            print("dropped", flush=True)
            stay()
        if rank == first and case == "late":
            stay()
        if rank == first and case == "raise":
            raise ValueError("a bad batch")
    print("done", flush=True)
except SsfxError as error:
    print(error, flush=True)
