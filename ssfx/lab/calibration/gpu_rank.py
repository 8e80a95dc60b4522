"""One rank of one part of the first hour on a GPU: `python -m ssfx.lab.calibration.gpu_rank request.json`.

Each part has processes of its own, because a kernel that fails leaves CUDA unusable in the process that it ran in.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path

import torch.distributed as dist

from ssfx.collectives.torch_comm import TorchComm
from ssfx.core import accelerator
from ssfx.lab.calibration.gpu_parts import PARTS, Sizes, one_line
from ssfx.lab.calibration.measure import COLLECTIVE_TIMEOUT_S
from ssfx.lab.worker.stop import die_with_launcher


def main(request_file: str) -> None:
    """Do the part that the request names; rank 0's result.json lies in its folder, with the problems of all ranks."""
    request = json.loads(Path(request_file).read_text())
    folder, rank, world = Path(request_file).parent, int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    die_with_launcher()
    kind: str = request["kind"]
    shared = world > accelerator.count(kind)
    where = accelerator.use(kind, 0 if shared else rank)
    if world > 1:
        # NCCL takes no two ranks of one GPU, gloo does.
        dist.init_process_group(
            "gloo" if shared else accelerator.transport(kind),
            init_method=f"file://{folder / 'store'}",
            rank=rank,
            world_size=world,
            timeout=timedelta(seconds=COLLECTIVE_TIMEOUT_S),
        )
    comm = TorchComm(dist.group.WORLD if world > 1 else None, where)
    found = PARTS[request["part"]].do(comm, Sizes(**request["sizes"]))
    if world > 1:
        everyone: list[list[str] | None] = [None] * world
        dist.all_gather_object(everyone, found.problems)
        found.problems = list(dict.fromkeys(line for lines in everyone for line in lines or ()))
    if rank == 0:
        (folder / "result.json").write_text(json.dumps(asdict(found)))
    if world > 1:
        dist.barrier()
    os._exit(0)  # an orderly end of torch takes seconds and nothing is left to be saved


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except BaseException as error:
        print(one_line(error), file=sys.stderr, flush=True)
        os._exit(1)
