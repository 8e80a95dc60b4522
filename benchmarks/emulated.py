"""How near to "communication costs nothing" training comes on slow networks: ssfx beside torch DDP, side by side.

    python benchmarks/emulated.py [--models vgg,lstm] [--networks 1gbit] [--workers 2,4] [--schemes all] [--json FILE]

For each model, network and number of workers one process group trains all variants in turns, a few steps each, in an
order that rotates, so that a busy machine hits all alike: no communication (the limit), an empty barrier instead of
the exchange (what waiting for the slowest rank costs), torch DDP, the same again (what noise does), DDP with its fp16
and PowerSGD hooks (rank 4), and ssfx schemes with their defaults; scheme=auto by its default quality, and by density.
Networks are emulated hosts with shaped lines, which needs root, or loopback, which does not. The default takes two
hours, one model on one network with 2 workers about two minutes.

Before and after every visit the limit has a short turn of its own, because a shared machine changes its speed from one
second to the next: a ratio to the limit is to these two, one to DDP is that of two such ratios of the same round. Times
are those of the slowest rank, medians over rounds; the range is that over the rounds. A goal is judged fairly: the best
scheme is chosen in every other round and judged in the rest, in which scheme=auto is compared with it.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from ssfx.core.errors import ConfigError, RunError, SsfxError, unknown
from ssfx.core.files import read_json, write_json
from ssfx.core.spec import Spec
from ssfx.lab.engines.hosts import INTERFACE, Hosts, Network, missing
from ssfx.lab.engines.launch import settings
from ssfx.lab.engines.netns import measure
from ssfx.lab.results.manifest import code, describe, hardware, now, versions
from ssfx.schemes import schemes

LIMIT, BARRIER, DDP = "no communication", "barrier only", "torch DDP"
HALF = f"{DDP} fp16"
REFERENCES = (LIMIT, BARRIER, DDP, f"{DDP} again", HALF, f"{DDP} powersgd")
MEASURES = ("step_s", "cpu_s", "compress_s", "decode_s", "wait_s", "sent_bytes")
NEAREST_LIMIT = "limit_s"
"""What a step took without communication just before and after a visit, the mean of both."""
DATASETS = {"resnet_tiny": "digits", "vgg_tiny": "digits", "lstm_tiny": "stdlib_text", "gpt2_tiny": "stdlib_text"}
"""By model; a model of the user's own, FILE.py:NAME, trains on made-up samples."""
NETWORKS = ("loopback", "1gbit", "100mbit")
AUTO = ("ssfx auto", "ssfx auto(density=0.01)")
SCHEMES = (
    "ddp,ddp bf16,fused_all,equal_count,mergecomp,hipress,espresso,ssfusion_oi,acpsgd,signsgd,micro,"
    "auto,auto(density=0.01)"
)
GOALS = {
    ("1gbit", 2): (LIMIT, 1.10),
    ("1gbit", 4): (LIMIT, 1.20),
    ("loopback", 2): (DDP, 1.0),
    ("loopback", 4): (DDP, 1.0),
}
"""At most how many times as long as what the best scheme may take, by network and workers."""
AUTO_GOALS = GOALS | {
    ("1gbit", 2): (LIMIT, 1.05),
    ("1gbit", 4): (LIMIT, 1.10),
    ("100mbit", 2): (LIMIT, 1.30),
    ("100mbit", 4): (LIMIT, 1.30),
}
"""The same for scheme=auto."""
SUMMARY = (
    "model",
    "network",
    "workers",
    "scheme",
    "over the limit",
    "over torch DDP",
    "over its fp16 hook",
    "over the best",
    "goal",
    "verdict",
)
POLL_S = 0.1


@dataclass(frozen=True)
class Ratios:
    """How many times as long one variant took as another, round by round."""

    each: tuple[float, ...]

    @property
    def median(self) -> float:
        return median(self.each)

    def __str__(self) -> str:
        return f"{self.median:.2f} ({min(self.each):.2f}-{max(self.each):.2f})"


@dataclass(frozen=True)
class Comparison:
    """What one process group measured: MEASURES and NEAREST_LIMIT of every visit by variant."""

    model: str
    network: str
    workers: int
    visits: dict[str, dict[str, list[float]]]

    def ratios(self, variant: str, to: str, rounds: slice = slice(None)) -> Ratios:
        """Return the times of `variant` over those of `to`, each as a multiple of the limit beside it."""
        own = self._over_the_limit(variant)[rounds]
        if to == LIMIT:
            return Ratios(own)
        return Ratios(tuple(one / other for one, other in zip(own, self._over_the_limit(to)[rounds], strict=True)))

    def _over_the_limit(self, variant: str) -> tuple[float, ...]:
        visits = self.visits[variant]
        return tuple(step_s / limit_s for step_s, limit_s in zip(visits["step_s"], visits[NEAREST_LIMIT], strict=True))

    def ranked(self, rounds: slice = slice(None)) -> list[str]:
        """Return the variants of ssfx but scheme=auto, the fastest first."""
        ours = [variant for variant in self.visits if variant not in (*REFERENCES, *AUTO)]
        return sorted(ours, key=lambda variant: self.ratios(variant, LIMIT, rounds).median)

    def summary(self) -> list[list[str]]:
        """Return a line for the best scheme and for each of AUTO: ratios, the goal, and whether their median meets it.

        "within noise": not by the median, but in some rounds.
        """
        best, rest = self.ranked(slice(0, None, 2))[0], slice(1, None, 2)
        lines = []
        for variant in (best, *(one for one in AUTO if one in self.visits)):
            cells = [variant, *(str(self.ratios(variant, to, rest)) for to in (LIMIT, DDP, HALF))]
            cells.append("" if variant == best else str(self.ratios(variant, best, rest)))
            goals = GOALS if variant == best else AUTO_GOALS
            lines.append([self.model, self.network, str(self.workers), *cells, *self._judged(variant, goals, rest)])
        return lines

    def _judged(self, variant: str, goals: Mapping[tuple[str, int], tuple[str, float]], rounds: slice) -> list[str]:
        """Return the goal of a variant in words, and whether it is met."""
        if (self.network, self.workers) not in goals:
            return ["", ""]
        to, most = goals[self.network, self.workers]
        found = self.ratios(variant, to, rounds)
        met = "met" if found.median <= most else "within noise" if min(found.each) <= most else "missed"
        return [f"<= {most:.2f} x {to}", met]


def table_of(found: Comparison, about: str) -> Table:
    """Return one comparison as a table; times are per step and worker."""
    table = Table(title=f"{found.model}, {found.network}, {found.workers} workers", caption=about)
    table.add_column("variant", no_wrap=True)
    for heading in (
        "ms",
        "over the limit",
        "over torch DDP",
        "CPU ms",
        "compress ms",
        "decode ms",
        "wait ms",
        "sent KB",
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    for variant in (*REFERENCES, *found.ranked(), *(one for one in AUTO if one in found.visits)):
        middle = {name: median(values) for name, values in found.visits[variant].items()}
        parts = [f"{1e3 * middle[name]:.1f}" for name in ("compress_s", "decode_s", "wait_s")]
        table.add_row(
            variant,
            f"{1e3 * middle['step_s']:.1f}",
            *(str(found.ratios(variant, to)) for to in (LIMIT, DDP)),
            f"{1e3 * middle['cpu_s']:.1f}",
            *([""] * 4 if variant in REFERENCES else [*parts, f"{middle['sent_bytes'] / 1e3:.0f}"]),
            end_section=variant == REFERENCES[-1],
        )
    return table


@contextmanager
def ranks(workers: int, hosts: Hosts | None, request: Path, log: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Start all ranks, one on each host, or all on this machine; none is left afterwards."""
    command = [sys.executable, str(Path(__file__).with_name("emulated_worker.py")), str(request)]
    shared = {**os.environ, **settings(1, INTERFACE if hosts else "lo"), "WORLD_SIZE": str(workers)}
    started: list[subprocess.Popen[bytes]] = []
    try:
        with log.open("wb") as out:
            for rank in range(workers):
                process = subprocess.Popen(
                    hosts.inside(rank, command) if hosts else command,
                    env={**shared, "RANK": str(rank)},
                    stdin=subprocess.PIPE,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
                started.append(process)
        yield started
    finally:
        for process in started:
            process.kill()
        for process in started:
            process.communicate()


def compared(model: str, workers: int, hosts: Hosts | None, variants: list[str], rounds: int) -> dict[str, Any]:
    """Return what the ranks measured; RunError with the end of their output when one of them fails."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        asked = {"model": model, "variants": variants, "rounds": rounds}
        files = {key: str(folder / key) for key in ("store", "result")}
        (folder / "request").write_text(json.dumps(asked | files))
        with ranks(workers, hosts, folder / "request", folder / "log") as started:
            while any(codes := [process.poll() for process in started]) or None in codes:
                if failed := [rank for rank, code in enumerate(codes) if code]:
                    end = (folder / "log").read_text(errors="replace").strip().splitlines()[-15:]
                    raise RunError("\n".join([f"rank {failed[0]} of {model} failed; the last it said:", *end]))
                time.sleep(POLL_S)
        result: dict[str, Any] = json.loads((folder / "result").read_text())
        return result


def variants_of(text: str) -> list[str]:
    """Return the references and the variants of ssfx that `text` names, after checking that there are such schemes."""
    chosen = schemes.names() if text == "all" else [part.strip() for part in re.split(r",(?![^()]*\))", text)]
    for one in chosen:
        scheme, options = scheme_of(one)
        schemes[scheme].options(options)
    return [*REFERENCES, *dict.fromkeys(f"ssfx {one}" for one in chosen)]


def scheme_of(text: str) -> tuple[str, dict[str, Any]]:
    """Return the scheme and its options that "SCHEME", "SCHEME(density=0.01)" or "SCHEME COMPRESSOR" names."""
    scheme, _, compressor = text.partition(" ")
    spec = Spec.parse(scheme, "scheme")
    given: dict[str, Any] = {"compressor": compressor} if compressor else {}
    return spec.name, given | {key: json.loads(value) for key, value in spec.options.items()}


def network_of(name: str, workers: int) -> Network | None:
    """Return the network to emulate, None for loopback; ConfigError for an unknown one or where none can be made."""
    network = Network.of(f"emulated_{workers}x{name}")
    if network is None and name != "loopback":
        raise unknown("network", name, NETWORKS)
    if network and (problem := missing()):
        raise ConfigError(f"network {name} cannot be emulated here: {problem}; use --networks loopback")
    return network


def models_of(text: str) -> list[str]:
    """Return the names of models of which the registered ones are called without "_tiny" here."""
    short = {name.removesuffix("_tiny"): name for name in DATASETS}
    for name in text.split(","):
        if name not in short and ".py:" not in name:
            raise unknown("model", name, short)
    return [short.get(name, name) for name in text.split(",")]


def options_of(arguments: list[str] | None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    larger = "benchmarks/larger_models.py"
    parser.add_argument(
        "--models",
        default=f"resnet,vgg,lstm,gpt2,{larger}:lstm,{larger}:gpt",
        help="comma list of names and FILE.py:NAME (default: %(default)s)",
    )
    parser.add_argument("--networks", default=",".join(NETWORKS), help="comma list (default: %(default)s)")
    parser.add_argument("--workers", default="2,4", help="comma list (default: %(default)s)")
    parser.add_argument(
        "--schemes", default=SCHEMES, help="comma list of SCHEME, 'SCHEME COMPRESSOR' or SCHEME(density=0.01), or all"
    )
    parser.add_argument("--rounds", type=int, default=4, help="visits of every variant (default: %(default)s)")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="also write all times to FILE, beside its other comparisons"
    )
    options = parser.parse_args(arguments)
    if options.rounds < 2:
        parser.error("--rounds must be at least 2: the best scheme is chosen in one and judged in another")
    if not re.fullmatch(r"[2-9](,[2-9])*", options.workers):
        parser.error(f"--workers {options.workers}: use numbers from 2 to 9, such as 2,4")
    return options


def keep(file: Path, run: dict[str, Any]) -> None:
    """Write `run` to the file, in the place of an earlier one of that model, network and number of workers."""
    runs = read_json(file)["runs"] if file.exists() else []
    by_comparison = {(one["model"], one["network"], one["workers"]): one for one in [*runs, run]}
    write_json(file, json.dumps({"columns": SUMMARY, "runs": list(by_comparison.values())}, indent=1))


def main() -> None:
    """Print a table per comparison as soon as it is there, then the goals."""
    options = options_of(None)
    console = Console(width=150)
    models, variants = models_of(options.models), variants_of(options.schemes)
    worlds = [(name, int(count)) for name in options.networks.split(",") for count in options.workers.split(",")]
    networks = {world: network_of(*world) for world in worlds}
    console.print(
        f"{describe(hardware())}, torch {versions()['torch']}, gloo, one thread a worker, {options.rounds} rounds"
    )
    summary = Table(
        title="the best ssfx scheme, chosen in one half of the rounds, and scheme=auto: ratios of the other"
    )
    for heading in SUMMARY:
        summary.add_column(heading, no_wrap=True)
    about_all = {"code": code(), "hardware": hardware(), "versions": versions(), "rounds": options.rounds}
    for (name, workers), network in networks.items():
        with ExitStack() as stack:
            hosts = stack.enter_context(Hosts(network)) if network else None
            rates = measure(hosts) if hosts else None
            for model in models:
                result = compared(model, workers, hosts, variants, options.rounds)
                found = Comparison(Path(model).name, name, workers, result["visits"])
                kind = f"emulated, lines measured at {min(rates):.3g} Gbit/s" if rates else "measured"
                about = f"{kind}, batch {result['batch_size']}, {result['gradient_bytes'] / 1e6:.1f} MB of gradients, "
                console.print(table_of(found, about + f"{result['background_cores']:.1f} cores busy with other things"))
                lines = found.summary()
                for line in lines:
                    summary.add_row(*line, end_section=line == lines[-1])
                asked = {"model": found.model, "network": name, "workers": workers, "measured_gbps": rates}
                about_run = {"origin": "emulated" if network else "measured", "date": now(), "summary": lines}
                if options.json:
                    keep(options.json, asked | about_all | about_run | result)
    console.print(summary)


if __name__ == "__main__":
    try:
        main()
    except SsfxError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
