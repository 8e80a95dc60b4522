"""Imports point one way, and what promises to be torch-free is: docs/architecture.md, enforced."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import ssfx

PACKAGE = Path(ssfx.__file__).parent

VOCABULARY = {
    "case", "cluster", "costs", "devices", "errors", "footprint", "lazy", "machine", "origin", "paths", "plan",
    "profile", "registry", "roofline", "spans", "spec", "work", "yardstick",
}  # fmt: skip
COMPONENTS = {"collectives", "compressors", "kernels", "memories"}
PLANNING = {"schemes", "wire", "timeline", "planning", "cost_tables", "codec_times", "recorded", "system", "systems"}
# layer -> what it may import besides itself
MAY_IMPORT = {
    **dict.fromkeys(VOCABULARY, VOCABULARY),
    **dict.fromkeys(COMPONENTS, VOCABULARY | COMPONENTS),
    **dict.fromkeys(PLANNING, VOCABULARY | COMPONENTS | PLANNING),
    "simulator": VOCABULARY | COMPONENTS | PLANNING,
    "results": VOCABULARY | {"config"},
    "workloads": VOCABULARY | {"results"},
    "runtime": VOCABULARY | COMPONENTS | PLANNING,
    "engines": VOCABULARY | COMPONENTS | PLANNING | {"results", "runtime", "simulator", "workloads"},
}
# The process that torchrun starts joins the layers: it is the engines' other half. A simulated case names its cluster,
# which only the configuration can turn into times.
MAY_ALSO_IMPORT = {
    "runtime/worker.py": {"engines", "results", "workloads"},
    "runtime/faults.py": {"results"},
    "engines/simulate.py": {"config"},
    "engines/slurm.py": {"config"},
    "engines/allocation.py": {"config"},
}
USES_TORCH = {"runtime", "workloads", "collectives", "compressors", "kernels", "memories"}


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """Yield (module, at import time) for every import of a file; under TYPE_CHECKING or in a function is later."""
    tree = ast.parse(path.read_text())
    later: set[ast.AST] = set()
    for node in ast.walk(tree):
        guarded = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        if guarded or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            later |= set(ast.walk(node)) - {node}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node not in later
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module, node not in later


def layer(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", modules(), ids=lambda p: p.relative_to(PACKAGE).as_posix())
def test_imports_point_one_way(path: Path) -> None:
    own = layer(path)
    if own not in MAY_IMPORT:
        return  # the commands and figures at the top may use everything
    allowed = MAY_IMPORT[own] | {own} | MAY_ALSO_IMPORT.get(path.relative_to(PACKAGE).as_posix(), set())
    for module, _ in imports(path):
        parts = module.split(".")
        if parts[0] == "ssfx" and len(parts) > 1:
            assert parts[1] in allowed, f"{own} imports {module}"


@pytest.mark.parametrize("path", modules(), ids=lambda p: p.relative_to(PACKAGE).as_posix())
def test_torch_is_imported_where_it_is_used(path: Path) -> None:
    at_import = {module.split(".")[0] for module, now in imports(path) if now}
    if layer(path) not in USES_TORCH:
        assert "torch" not in at_import
    if layer(path) in COMPONENTS:
        assert "torch" not in at_import, "components declare themselves without torch: from ssfx.lazy import torch"
