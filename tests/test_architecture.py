"""Imports point one way, and what promises to be torch-free is: docs/architecture.md, enforced for every module."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import ssfx

PACKAGE = Path(ssfx.__file__).parent

LAYERS: tuple[tuple[str, ...], ...] = (
    ("core",),
    ("planning",),
    ("wire",),
    ("kernels",),
    ("compressors", "memories", "collectives"),
    ("perf_model", "pricing"),
    ("schemes",),
    ("results",),
    ("workloads", "simulator"),
    ("runtime", "sharded"),
    ("calibration", "integrations"),
    ("engines",),
    ("claims", "advice", "validation"),
    ("figures", "evaluation"),
    ("config",),
    ("pages", "cli"),
)
"""The rooms from the bottom up: a module imports from its own layer and from those below it."""
RANK = {room: number for number, rooms in enumerate(LAYERS) for room in rooms}
UPWARD = {
    "calibration/calibrate_cluster.py": {"engines"},
}
"""Modules that still import from above, and what."""
USES_TORCH = {
    "runtime",
    "sharded",
    "integrations",
    "calibration",
    "workloads",
    "collectives",
    "compressors",
    "kernels",
    "memories",
    "wire",
}
LAZY_TORCH = {"collectives", "compressors", "kernels", "memories", "wire"}


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
            if node.module == "ssfx":
                yield from ((f"ssfx.{alias.name}", node not in later) for alias in node.names)


def circles() -> set[frozenset[str]]:
    """Return every largest set of modules that reach each other by imports, those inside functions too."""
    names = {".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): path
             for path in modules()}  # fmt: skip
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
    """Yield the modules that a file imports anywhere but for types, and what it imports from as one of its own."""
    tree = ast.parse(path.read_text())
    types = {inner for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
             for inner in ast.walk(node)}  # fmt: skip
    for node in ast.walk(tree):
        if node in types:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = PACKAGE.parent.joinpath(*node.module.split("."), alias.name)
                own = inner.with_suffix(".py").exists() or inner.joinpath("__init__.py").exists()
                yield f"{node.module}.{alias.name}" if own else node.module


def test_no_modules_import_each_other_not_even_late() -> None:
    assert circles() == set()


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0]


def test_every_room_has_its_layer() -> None:
    rooms = {path.name for path in PACKAGE.iterdir() if any(path.glob("*.py"))}
    assert rooms == set(RANK)


def test_the_root_of_the_package_is_nearly_empty() -> None:
    assert len(list(PACKAGE.glob("*.py"))) <= 8


@pytest.mark.parametrize("path", modules(), ids=lambda p: p.relative_to(PACKAGE).as_posix())
def test_imports_point_one_way(path: Path) -> None:
    name = path.relative_to(PACKAGE).as_posix()
    own = RANK.get(room(path), len(LAYERS))
    used = {module.split(".")[1] for module, _ in imports(path) if module.startswith("ssfx.")} & set(RANK)
    upward = {other for other in used if RANK[other] > own}
    assert upward == UPWARD.get(name, set())


@pytest.mark.parametrize("path", modules(), ids=lambda p: p.relative_to(PACKAGE).as_posix())
def test_torch_is_imported_where_it_is_used(path: Path) -> None:
    at_import = {module.split(".")[0] for module, now in imports(path) if now}
    if room(path) not in USES_TORCH:
        assert "torch" not in at_import
    if room(path) in LAZY_TORCH:
        assert "torch" not in at_import, "components declare themselves without torch: from ssfx.core.lazy import torch"


FLOAT_MAKERS = {"empty", "eye", "full", "linspace", "ones", "rand", "randn", "zeros"}


@pytest.mark.parametrize("path", modules(), ids=lambda p: p.relative_to(PACKAGE).as_posix())
def test_every_buffer_has_a_dtype(path: Path) -> None:
    """A buffer without one would follow torch.set_default_dtype, which is the user's and may be bfloat16."""
    if room(path) not in USES_TORCH - {"workloads"}:
        return
    without = [
        node.lineno
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "torch"
        and node.func.attr in FLOAT_MAKERS
        and all(keyword.arg != "dtype" for keyword in node.keywords)
    ]
    assert not without, "say the dtype in these lines"


@pytest.mark.parametrize("path", modules(), ids=lambda p: p.relative_to(PACKAGE).as_posix())
def test_the_kernels_room_alone_asks_what_a_device_is(path: Path) -> None:
    """Streams, events and waiting come from kernels/accelerator.py, so that a fake device can stand in for a GPU."""
    if room(path) == "kernels":
        return
    asks = [
        node.lineno
        for node in ast.walk(ast.parse(path.read_text()))
        if (isinstance(node, ast.Attribute) and node.attr in ("is_cuda", "cuda"))
        or (
            isinstance(node, ast.Compare)
            and isinstance(node.left, ast.Attribute)
            and node.left.attr == "type"
            and any(isinstance(of, ast.Constant) and of.value == "cuda" for of in node.comparators)
        )
    ]
    assert not asks, f"{path.name}: lines {asks} ask torch about CUDA; ask ssfx.core.accelerator"
