"""Which backward pass a hook runs in: autograd graphs nest when checkpointing is reentrant, and may be given up."""

import sys
import threading
from types import FrameType

import torch

from ssfx.core.errors import RunError


class BackwardPass:
    """Tells one backward pass with its nested graphs from the next, by autograd's graph task ids."""

    def __init__(self) -> None:
        self._tasks: set[int] = set()

    def begin(self) -> None:
        """Forget the graphs of the pass before."""
        self._tasks.clear()

    def enter(self) -> bool:
        """Return True when the calling hook is the first of its graph; RunError if the pass before never ended."""
        task: int = torch._C._current_graph_task_id()
        if task in self._tasks:
            return False
        if self._tasks and task > max(self._tasks) and not nested():
            raise RunError(
                "the backward pass before this one ended with an exception, so ranks may hold different gradients; "
                "let the exception end the run, or detach and attach again on every rank"
            )
        self._tasks.add(task)
        return True


def nested() -> bool:
    """Return True inside a backward pass that another one started (reentrant checkpointing).

    The engine runs nested graphs below the Python frame that started them. A thread of Python's own has one such frame
    for its outermost pass; a thread of the engine has none.
    """
    depth = 0
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        depth += frame.f_code.co_name == "_engine_run_backward"
        frame = frame.f_back
    of_python = not isinstance(threading.current_thread(), threading._DummyThread)
    return depth > (1 if of_python else 0)
