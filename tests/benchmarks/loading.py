"""Programs of benchmarks/ as modules: that folder is no package."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def benchmark_module(name: str) -> ModuleType:
    """Return benchmarks/<name>.py, executed as a module of its own name."""
    path = Path(__file__).parents[2] / "benchmarks" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"{name}_benchmark", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
