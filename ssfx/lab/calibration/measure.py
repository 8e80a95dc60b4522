"""The process of one rank that measures: `python -m ssfx.lab.calibration.measure request.json`.

It finds its place in RANK and WORLD_SIZE, meets the other ranks in the request's folder, and what rank 0 leaves there
is read by `calibrate_cluster`. All ranks do the same at the same time, because they share the machine in training.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from ssfx.collectives.comm import Comm
from ssfx.core import machine
from ssfx.lab.calibration.measure_compressors import codec_points
from ssfx.lab.calibration.measure_exchange import exchange_points
from ssfx.lab.calibration.measure_overheads import overhead_times

COLLECTIVE_TIMEOUT_S = 60


def main(request_file: str) -> None:
    """Measure what the request asks for; rank 0's result.json then lies in the folder of the request."""
    request = json.loads(Path(request_file).read_text())
    folder, rank = Path(request_file).parent, int(os.environ["RANK"])
    end_with_launcher()
    machine.share_cores(rank, int(os.environ["WORLD_SIZE"]))
    torch.set_num_threads(1)
    store = f"file://{folder / 'store'}"
    dist.init_process_group(
        "gloo", init_method=store, rank=rank, world_size=int(os.environ["WORLD_SIZE"]),
        timeout=timedelta(seconds=COLLECTIVE_TIMEOUT_S),
    )  # fmt: skip
    comm = Comm()
    comm.all_reduce(torch.zeros(1, dtype=torch.float32)).wait()  # from here on all compute at the same time
    found: dict[str, Any] = {}
    if "max_bytes" in request:
        found["exchange"] = [asdict(one) for one in exchange_points(comm, request["max_bytes"], request["primitives"])]
    if "compressors" in request:
        found["codecs"] = {
            name: asdict(codec_points(name, request["density"], comm, request["max_numel"]))
            for name in request["compressors"]
        }
        found["overheads"] = asdict(overhead_times(comm))
    if rank == 0:
        (folder / "result.json").write_text(json.dumps(found))
    comm.all_reduce(torch.zeros(1, dtype=torch.float32)).wait()  # nobody leaves while a peer may still be reading
    os._exit(0)  # an orderly end of torch takes seconds and nothing is left to be saved


def end_with_launcher() -> None:
    """End this process when its standard input closes: the launcher is gone."""

    def wait() -> None:
        os.read(0, 1)
        os._exit(1)

    threading.Thread(target=wait, name="launcher-watch", daemon=True).start()


if __name__ == "__main__":
    main(sys.argv[1])
