"""`ssfx doctor`: what is installed and here, and what therefore runs."""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass
from importlib import metadata
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import click

from ssfx.cli import EXTRAS
from ssfx.cli.terminal import print_table, say
from ssfx.core import accelerator, machine
from ssfx.core.errors import RunError, SsfxError
from ssfx.core.files import check_writable, write_json
from ssfx.core.paths import conf_dir, reference_dir, results_dir
from ssfx.lab.engines import hosts, submission
from ssfx.lab.results.store import reference_files
from ssfx.perf_model.gpu_record import record_path

if TYPE_CHECKING:
    from ssfx.perf_model.gpu_record import Part


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print all of it as one JSON object.")
@click.option("--gpu", is_flag=True, help="Check this machine's GPUs and measure them, in five minutes at most.")
def doctor(as_json: bool, gpu: bool) -> None:
    """Show versions, hardware, backends and data sets, and what would run here.

    With --gpu the GPUs here are checked and measured: kernels, streams, schemes against torch DDP, exchanges, times of
    compressors and models. One file has all of it; simulations of cluster=local then use it.
    """
    if gpu:
        check_gpus_here(as_json)
        return
    facts, checks = examine()
    broken = [check.what for check in checks if check.required and not check.runs]
    if as_json:
        click.echo(json.dumps({"facts": dict(facts), "checks": list(map(asdict, checks)), "ready": not broken}))
        if broken:
            raise click.exceptions.Exit(1)
        return
    print_table(("what", "here"), facts)
    click.echo()
    for check in checks:
        colour = "green" if check.runs else "red" if check.required else "yellow"
        mark = "runs" if check.runs else "does not run"
        say(f"{check.what}: {mark}{f', {check.why}' if check.why else ''}", "    ", "", fg=colour)
    click.echo()
    if broken:
        say(f"ssfx run cannot work here before this does: {', '.join(broken)}", "    ", "", fg="red", bold=True)
        raise click.exceptions.Exit(1)
    if lab_is_here():
        click.secho("all that ssfx run needs is here; start with: ssfx run", bold=True)
    else:
        click.secho("all that ssfx.attach needs is here; start with: ssfx advise", bold=True)


CORE_PACKAGES = ("ssfx", "torch", "numpy", "hydra-core", "matplotlib")
OTHER_PACKAGES = ("torchvision", "transformers", "datasets", "wandb")
TORCH_TIMEOUT_S = 120
FREE_BYTES_WANTED = 2**30
ANY_MODEL = "resnet_tiny"
LAB = "without pip install 'ssfx[lab]'"

_ASK_TORCH = """
import json, torch, torch.distributed as dist
from ssfx.core import accelerator
from ssfx.lab.workloads.train import onednn_computes, onednn_has_lstm
print(json.dumps({
    "cuda": accelerator.count("cuda") > 0, "gpus": accelerator.count("cuda"), "gloo": dist.is_gloo_available(),
    "nccl": dist.is_nccl_available(), "bf16": onednn_computes(torch.bfloat16),
    "bf16_lstm": onednn_has_lstm(torch.bfloat16),
}))
"""


@dataclass(frozen=True)
class Check:
    """Whether something can run here, and why not; `required` ones are what `ssfx run` cannot do without."""

    what: str
    runs: bool
    why: str = ""
    required: bool = False


def examine() -> tuple[tuple[tuple[str, str], ...], tuple[Check, ...]]:
    """Return facts and checks; takes seconds, because PyTorch is imported in a process of its own."""
    torch, problem = ask_torch()
    above = next(path for path in (results_dir(), *results_dir().parents) if path.exists())  # nothing may be there yet
    free = shutil.disk_usage(above).free
    datasets = _datasets()
    backends = [name for name in ("gloo", "nccl") if torch.get(name)]
    facts = (
        ("python", f"{platform.python_version()} on {platform.system()} {platform.machine()}"),
        ("core packages", ", ".join(map(_version, CORE_PACKAGES))),
        ("other packages", ", ".join(map(_version, OTHER_PACKAGES))),
        ("CPU cores", str(machine.cores())),
        ("memory", f"{machine.memory_bytes() / 2**30:.1f} GiB free" if lab_is_here() else f"not known {LAB}"),
        ("GPUs", ", ".join(machine.gpus()) or "none"),
        ("torch", problem or f"imports; backends {', '.join(backends)}; {torch['gpus']} CUDA devices"),
        ("data sets", ", ".join(f"{name} (cannot be read)" if why else name for name, why in datasets) or "none"),
        ("results", f"{results_dir()}, {free / 2**30:.1f} GiB free"),
        ("installed", "from a checkout" if (conf_dir().parent / "pyproject.toml").exists() else "from a wheel"),
        ("reference rows", f"{len(reference_files(reference_dir()))} files that came with ssfx"),
    )
    data = (Check(f"dataset={name}", not why, why) for name, why in datasets)
    checks = (*_engines(torch, problem), *_precisions(torch, problem), *data, *_space(free))
    return facts, checks


def lab_is_here() -> bool:
    """Return whether the packages of the extra that `ssfx run` needs are installed."""
    return all(find_spec(name) is not None for name in EXTRAS["lab"])


def ask_torch() -> tuple[dict[str, Any], str]:
    """Return what PyTorch says about itself, and "" or the problem, asked in a process of its own."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", _ASK_TORCH], capture_output=True, text=True, timeout=TORCH_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        return {}, f"did not import within {TORCH_TIMEOUT_S} s"
    if done.returncode:
        return {}, "does not import: " + (done.stderr.strip().splitlines() or ["no message"])[-1]
    answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return answer, ""


def _no_gpu(torch: dict[str, Any], problem: str) -> str:
    """Return why nothing runs on a GPU here, "" if something does."""
    if not machine.gpus():
        return "no GPU here"
    return "" if torch.get("cuda") else problem or "this PyTorch sees no CUDA"


def _engines(torch: dict[str, Any], problem: str) -> list[Check]:
    no_gpu = _no_gpu(torch, problem)
    attach = Check("ssfx.attach, plan, simulate, advise", bool(torch.get("gloo")), problem, required=True)
    if not lab_is_here():
        return [attach, Check("ssfx run and profile", False, LAB)]
    return [
        attach,
        Check("ssfx run on the CPU (gloo)", bool(torch.get("gloo")), problem, required=True),
        Check("ssfx run device=cuda (nccl)", not no_gpu and bool(torch.get("nccl")), no_gpu),
        Check("ssfx run cluster=emulated_2x1gbit and its like", not hosts.missing(), hosts.missing()),
        Check("ssfx run engine=slurm", not submission.missing(), submission.missing()),
        Check("ssfx run cluster=64gpu and others that are not here, simulated", True),
    ]


def _precisions(torch: dict[str, Any], problem: str) -> list[Check]:
    no_gpu = _no_gpu(torch, problem)
    slow = ""
    if not torch.get("bf16"):
        slow = "but on the CPU far slower than fp32: oneDNN computes nothing in bf16 on this one"
    elif not torch.get("bf16_lstm"):
        slow = "but LSTMs on the CPU several times slower than in fp32: oneDNN has none in bf16 for this one"
    on_gpus = [
        Check(f"precision={name}", not no_gpu, no_gpu and f"{no_gpu}, and on the CPU it is refused")
        for name in ("fp16", "tf32")
    ]
    return [
        Check("precision=fp32", not problem, problem),
        Check("precision=bf16", not problem, problem or slow),
        *on_gpus,
    ]


def _space(free: int) -> list[Check]:
    if free >= FREE_BYTES_WANTED:
        return []
    return [
        Check("writing results", False, f"less than 1 GiB is free in {results_dir()}; set SSFX_RESULTS", required=True)
    ]


def _datasets() -> list[tuple[str, str]]:
    """Return every data set that is more than a name, with "" or why it cannot be read."""
    from ssfx.lab.workloads import datasets

    if not lab_is_here():
        return []
    found = []
    for entry in datasets:
        if not entry.cls.here:
            continue
        try:
            # Random samples have the shapes of a model: that of any will do.
            spec = f"{entry.name}(model={ANY_MODEL})" if "model" in asdict(entry.options) else entry.name
            datasets.build(spec).fingerprint()
            found.append((entry.name, ""))
        except SsfxError as error:
            found.append((entry.name, str(error)))
    return found


def _version(package: str) -> str:
    try:
        return f"{package} {metadata.version(package)}"
    except metadata.PackageNotFoundError:
        return f"{package} missing"


def check_gpus_here(as_json: bool) -> None:
    """Check and measure the GPUs here and write the record; exit code 1 without a GPU, or where a part failed."""
    if not machine.gpus():
        raise RunError("ssfx doctor --gpu needs a GPU and nvidia-smi shows none here; ssfx doctor says what runs")
    from ssfx.lab.calibration.gpu_check import check_gpus, sizes_on_gpu

    gpus = accelerator.count("cuda")
    if not gpus:
        raise RunError("this PyTorch sees no GPU, though nvidia-smi does; install a build of torch for CUDA")
    path = record_path()
    check_writable(path.parent, "set SSFX_RESULTS to a folder of yours")
    record = check_gpus("cuda", gpus, sizes_on_gpu(), (lambda _: None) if as_json else _tell)
    write_json(path, record.to_json())
    if as_json:
        click.echo(record.to_json())
    else:
        say(f"{record.origin.hardware}, {record.origin.date}", "  ", "", bold=True)
        click.echo(str(path))
        say("simulations of cluster=local use it; please attach it to an issue: docs/calibration.md", "  ", "")
    if record.failed:
        click.echo(f"ssfx: failed: {', '.join(record.failed)}", err=True)
        raise click.exceptions.Exit(1)


def _tell(part: Part) -> None:
    say(
        f"{part.name}, {part.seconds:.0f} s: {part.said or 'nothing'}",
        "    ",
        "",
        fg=None if part.problems else "green",
    )
    for problem in part.problems:
        say(f"{part.name} failed: {problem}", "    ", "", fg="red")
