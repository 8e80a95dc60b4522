"""Whether every option of a scheme, compressor or memory has a user: exit code 1 and one line for each without.

    python benchmarks/options_used.py

An option stays if a committed row, an experiment, a preset, a workload, a figure, a benchmark, a spec of the library or
an example in the documentation sets it, or if options_of_users.txt names it: facts of somebody's training or site.
Any other is a constant with a name and a sentence.
"""

import gzip
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

from ssfx.compressors import compressors
from ssfx.compressors.memories import memories
from ssfx.schemes import schemes

ROOT = Path(__file__).parents[1]
FACTS = Path(__file__).with_name("options_of_users.txt")
TEXTS = (
    *("conf/experiment/*.yaml", "conf/preset/*.yaml", "conf/workload/*.yaml", "Makefile", "*.md", "docs/*.md"),
    *("experiments/**/*.py", "experiments/**/*.json", "benchmarks/*.py"),
    *("ssfx/schemes/search/*.py", "ssfx/advice/*.py", "ssfx/cli/*.py", "ssfx/lab/**/*.py"),
)
GENERATED = ("CHANGELOG.md",)


def options() -> Iterator[tuple[str, str, str]]:
    """Yield kind, component and name of every option."""
    for kind, found in (("scheme", schemes), ("compressor", compressors), ("memory", memories)):
        for one in found:
            defaults = getattr(one, "defaults", None) or one.options
            yield from ((kind, one.name, field.name) for field in fields(defaults))


def in_rows() -> set[tuple[str, str]]:
    """Return component and option of all that a committed row sets."""
    found = set()
    for path in sorted((ROOT / "results/reference").glob("*.jsonl*")):
        with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
            for case in (json.loads(line)["case"] for line in lines):
                found |= {(case["scheme"], name) for name in case.get("scheme_options") or {}}
                specs = (case.get(kind) or "" for kind in ("compressor", "memory", "shard_compressor", "weights"))
                found |= {pair for spec in specs for pair in in_spec(spec)}
    return found


def in_spec(text: str) -> set[tuple[str, str]]:
    """Return component and option of every spec in a text, as "dgc(mode=faithful)"."""
    return {
        (name, option)
        for name, inside in re.findall(r"\b(\w+)\(([^()]*)\)", text)
        for option in re.findall(r"(\w+)=", inside)
    }


def sets(text: str, kind: str, name: str, option: str) -> bool:
    """Return whether a line of a text names the component and sets its option."""
    given = re.compile(rf"\b{kind}\.{option}\b|[\"']{option}[\"']:|\b{option}=")
    return any(re.search(rf"\b{name}\b", line) and given.search(line) for line in text.splitlines())


def unused() -> list[str]:
    """Return the options without a user, and facts of users that are no option any more."""
    facts = {line.split()[0] for line in FACTS.read_text().splitlines() if line and not line.startswith("#")}
    paths = {path for pattern in TEXTS for path in ROOT.glob(pattern)} - {ROOT / name for name in GENERATED}
    texts = [path.read_text() for path in sorted(paths)]
    specs = in_rows().union(*map(in_spec, texts))
    found, known = [], set()
    for kind, name, option in options():
        known |= {f"{kind}.{option}", f"{name}.{option}"}
        stated = {f"{kind}.{option}", f"{name}.{option}"} & facts
        if not stated and (name, option) not in specs and not any(sets(text, kind, name, option) for text in texts):
            found.append(f"{kind} {name}: nothing sets its option {option}; make it a constant, or show who needs it")
    return found + [f"{FACTS.name}: {fact} is no option" for fact in sorted(facts - known)]


if __name__ == "__main__":
    without = unused()
    print("\n".join(without) or "every option has a user")
    sys.exit(bool(without))
