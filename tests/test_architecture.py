"""Imports point one way, and what promises to be torch-free is: docs/architecture.md, enforced for every module."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

import ssfx

ROOT = Path(ssfx.__file__).parents[1]
LIBRARY, LAB, PAPERS = "ssfx", "ssfx.lab", "experiments.common"
PARTS: dict[str, tuple[tuple[str, ...], ...]] = {
    LIBRARY: (
        ("core",),
        ("planning",),
        ("wire",),
        ("compressors",),
        ("collectives", "perf_model"),
        ("simulator",),
        ("schemes",),
        ("runtime", "sharded", "advice"),
        ("config",),
        ("cli",),
    ),
    LAB: (("results",), ("workloads",), ("worker",), ("engines",), ("calibration", "config"), ("cli",)),
    PAPERS: (("claims",), ("figures", "validation"), ("evaluation",), ("pages",), ("cli",)),
}
"""The rooms of the library, the harness and the papers, from the bottom up.

A module imports from its own layer and from those below it. The library knows nothing of the harness, and neither knows
the papers: what stands above is found by its entry points.
"""
RANK = {
    f"{part}.{room}": (place, number)
    for place, (part, layers) in enumerate(PARTS.items())
    for number, rooms in enumerate(layers)
    for room in rooms
}
USES_TORCH = {
    "ssfx.runtime",
    "ssfx.runtime.integrations",
    "ssfx.sharded",
    "ssfx.collectives",
    "ssfx.compressors",
    "ssfx.lab.calibration",
    "ssfx.lab.workloads",
    "ssfx.lab.worker",
}
LAZY_TORCH = {"ssfx.collectives", "ssfx.compressors", "ssfx.wire"}
DEVICES = "ssfx/core/accelerator.py"
"""The one module that asks what a device is; kernels may, too."""


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def modules() -> list[Path]:
    return sorted([*(ROOT / "ssfx").rglob("*.py"), *(ROOT / "experiments" / "common").rglob("*.py")])


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """Yield (module, at import time) for every import of a file; under TYPE_CHECKING or in a function is later."""
    tree = tree_of(path)
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
            if node.module == "ssfx":
                yield from ((f"ssfx.{alias.name}", node not in later) for alias in node.names)


def circles() -> set[frozenset[str]]:
    """Return every largest set of modules that reach each other by imports, those inside functions too."""
    names = {dotted(path): path for path in modules()}
    asked = {name: {one for one in needed(path) if one in names and one != name} for name, path in names.items()}
    order: list[str] = []

    def visit(start: str, edges: dict[str, set[str]], done: set[str], found: list[str]) -> None:
        waiting = [(start, iter(sorted(edges[start])))]
        done.add(start)
        while waiting:
            _, others = waiting[-1]
            for other in others:
                if other not in done:
                    done.add(other)
                    waiting.append((other, iter(sorted(edges[other]))))
                    break
            else:
                found.append(waiting.pop()[0])

    seen: set[str] = set()
    for name in asked:
        if name not in seen:
            visit(name, asked, seen, order)
    back: dict[str, set[str]] = {name: set() for name in asked}
    for name, others in asked.items():
        for other in others:
            back[other].add(name)
    seen, together = set(), set()
    for name in reversed(order):
        if name not in seen:
            one: list[str] = []
            visit(name, back, seen, one)
            together |= {frozenset(one)} if len(one) > 1 else set()
    return together


def needed(path: Path) -> Iterator[str]:
    """Yield the modules that a file imports anywhere, for types too, and what it imports from as one of its own."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = ROOT.joinpath(*node.module.split("."), alias.name)
                own = inner.with_suffix(".py").exists() or inner.joinpath("__init__.py").exists()
                yield f"{node.module}.{alias.name}" if own else node.module


def test_no_modules_import_each_other_not_even_late() -> None:
    assert circles() == set()


def dotted(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def room(module: str) -> str:
    """Return the room that a module is in: ssfx.core of ssfx.core.case; a part where it is in none."""
    part = next(part for part in (LAB, PAPERS, LIBRARY) if module == part or module.startswith(f"{part}."))
    inside = module.removeprefix(part).lstrip(".").partition(".")[0]
    return f"{part}.{inside}" if inside else part


def test_every_room_has_its_layer() -> None:
    rooms = {room(dotted(path)) for path in modules() if path.name != "__init__.py"}
    assert rooms - {"ssfx.lab.profile_network", "ssfx.__main__"} == set(RANK)
    assert len([one for one in RANK if one.startswith("ssfx.") and not one.startswith(LAB)]) <= 13


def level(module: str) -> tuple[int, int]:
    """Return how high a module stands: its part, and the layer of its room; above all rooms what is in none."""
    mine = room(module)
    part = next(part for part in (LAB, PAPERS, LIBRARY) if mine == part or mine.startswith(f"{part}."))
    return RANK.get(mine) or (list(PARTS).index(part), 99)


def test_imports_point_one_way() -> None:
    above = {}
    for path in modules():
        name = dotted(path)
        used = {module for module, _ in imports(path) if module.partition(".")[0] in ("ssfx", "experiments")}
        above[name] = {module for module in used if level(module) > level(name)}
    assert {name: found for name, found in above.items() if found} == {}


def test_torch_is_imported_where_it_is_used() -> None:
    """Elsewhere, and where components declare themselves without torch, it is `from ssfx.core.lazy import torch`."""
    at_import = {
        dotted(path)
        for path in modules()
        if any(now and module.split(".")[0] == "torch" for module, now in imports(path))
    }
    assert {name for name in at_import if room(name) not in USES_TORCH - LAZY_TORCH} == set()


FLOAT_MAKERS = {"empty", "eye", "full", "linspace", "ones", "rand", "randn", "zeros"}


def lines_where(asked: Callable[[ast.AST], bool], paths: Iterable[Path]) -> list[str]:
    """Return file:line of every node of the files of which `asked` is true."""
    return [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in paths
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.expr) and asked(node)
    ]


def test_every_buffer_has_a_dtype() -> None:
    """A buffer without one would follow torch.set_default_dtype, which is the user's and may be bfloat16."""

    def without(node: ast.AST) -> bool:
        return (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and isinstance(node.func.value, ast.Name)
            and node.func.value.id == "torch"
            and node.func.attr in FLOAT_MAKERS
            and all(keyword.arg != "dtype" for keyword in node.keywords)
        )

    ours = [path for path in modules() if room(dotted(path)) in USES_TORCH - {"ssfx.lab.workloads"}]
    assert lines_where(without, ours) == [], "say the dtype in these lines"


def test_one_module_and_the_kernels_ask_what_a_device_is() -> None:
    """Streams, events and waiting come from core/accelerator.py, so that a fake device can stand in for a GPU."""

    def asks(node: ast.AST) -> bool:
        return (isinstance(node, ast.Attribute) and node.attr in ("is_cuda", "cuda")) or (
            isinstance(node, ast.Compare)
            and isinstance(node.left, ast.Attribute)
            and node.left.attr == "type"
            and any(isinstance(of, ast.Constant) and of.value == "cuda" for of in node.comparators)
        )

    ours = [path for path in modules() if path != ROOT / DEVICES and "kernels" not in path.parts]
    assert lines_where(asks, ours) == [], "these lines ask torch about CUDA; ask ssfx.core.accelerator"
