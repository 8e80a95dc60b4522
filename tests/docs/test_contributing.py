"""The examples of CONTRIBUTING.md and README.md work as printed, on two ranks."""

import os
import subprocess
import sys
import textwrap

import pytest
from docs.markdown import ROOT, python_blocks
from processes import finished, torchrun

PREAMBLE = """
import importlib
import sys
import torch
import torch.distributed

torch.set_num_threads(1)
torch.distributed.init_process_group("gloo")
sys.path.append({tests!r})
for kind in ("schemes", "compressors", "collectives"):
    # As if the example's file lay in the package: registries look in every folder of the package's path.
    importlib.import_module("ssfx." + kind).__path__.append({here!r} + "/ssfx/" + kind)
"""


SCRIPT = """
torch.manual_seed(0)
model = torch.nn.Linear(30, 20)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""

STEP = """
for _ in range(12):
    optimizer.zero_grad()
    model(torch.full((4, 30), 1.0 + torch.distributed.get_rank())).square().mean().backward()
    optimizer.step()
weight = model.weight.detach().clone()
torch.distributed.broadcast(weight, 0)
assert torch.equal(weight, model.weight)
sync.detach()
"""


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.torchrun
def test_every_example_works_as_printed(tmp_path):
    checks = []
    files = []
    for block in python_blocks(ROOT / "CONTRIBUTING.md"):
        head, _, text = block.partition("\n")
        name = head.removeprefix("# ")
        if name == "check":
            checks.append(text)
            continue
        assert not (ROOT / name).exists(), f"{name} is an example and a file of the project"
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        files.append(name)
    assert [name.split("/")[-2] for name in files] == ["schemes", "compressors", "collectives", "example", "mine"]
    assert len(checks) == 6
    checks[:0] = [SCRIPT, *python_blocks(ROOT / "README.md"), STEP]
    # The figure's check writes files, which two ranks must not do at the same time.
    checks[-2] = "if torch.distributed.get_rank() == 0:\n" + textwrap.indent(checks[-2], "    ")

    program = tmp_path / "checks.py"
    program.write_text(PREAMBLE.format(tests=str(ROOT / "tests"), here=str(tmp_path)) + "\n".join(checks))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "default"}
    done = finished(torchrun(tmp_path, program), cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr

    for name in files:
        ruff = [sys.executable, "-m", "ruff", "check", "--config", str(ROOT / "pyproject.toml"), str(tmp_path / name)]
        assert subprocess.run(ruff, capture_output=True, text=True).stdout.strip().endswith("All checks passed!"), name
