"""CPU-only builds of torch come without Triton: what needs it cannot be imported there."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("triton") else ["test_triton.py", "test_modules.py"]
