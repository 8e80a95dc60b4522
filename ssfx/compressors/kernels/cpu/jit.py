"""Compilation of the CPU kernels, once per machine and version of their sources.

Numba keeps compiled code per function and notices changes of that function's file only, although it inlines functions
of other files. The folder of its cache is therefore named after the content of the file and of every kernel file that
it imports: stale code cannot be used, and nothing is written beside the package.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from numba import config, njit
from numba.core import event
from numba.core.compiler_lock import global_compiler_lock

from ssfx.core import paths

_IMPORT = re.compile(r"^from ssfx\.compressors\.kernels\.(\w+)\.(\w+) import", re.MULTILINE)


@functools.cache
def cache_dir(source: Path) -> Path:
    """Return the folder for one source file: below $NUMBA_CACHE_DIR, $XDG_CACHE_HOME/ssfx or ~/.cache/ssfx."""
    digest = hashlib.sha256()
    for path in sorted(_with_imports(source)):
        digest.update(path.read_bytes())
    base = Path(os.environ.get("NUMBA_CACHE_DIR") or paths.cache_dir()).expanduser()
    return base / f"{source.stem}-{digest.hexdigest()[:16]}"


def _with_imports(source: Path) -> set[Path]:
    folder = source.parents[1]
    imported = (folder / room / f"{name}.py" for room, name in _IMPORT.findall(source.read_text()))
    return {source}.union(*map(_with_imports, imported))


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the decorator that compiles a function at its first call, without the interpreter lock."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        folder = cache_dir(Path(function.__code__.co_filename))
        before, config.CACHE_DIR = config.CACHE_DIR, str(folder)
        try:
            kernel: Callable[..., Any] = njit(nogil=True, cache=True, **options)(function)
        finally:
            config.CACHE_DIR = before
        compile_here = kernel.compile  # type: ignore[attr-defined]

        def compile_once(signature: Any) -> Any:
            # The lock of this process's threads first: a thread that has it may need the file of an inlined kernel.
            with global_compiler_lock, _alone(folder):
                return compile_here(signature)

        kernel.compile = compile_once  # type: ignore[attr-defined]
        return kernel

    return decorate


_HELD: set[Path] = set()
"""Folders that this process has locked: a kernel that inlines another one of its file comes here twice."""


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep other processes from compiling into the same folder: they wait, and then load what was compiled.

    All ranks of a first run need the same kernels at the same moment. Where files cannot be locked, each compiles. The
    caller holds the lock of numba's compiler.
    """
    if folder in _HELD:
        yield
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / "lock").open("w")
    except OSError:
        yield
        return
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with event.trigger_event("numba:compile"):  # to whoever watches, waiting for another is compiling
                fcntl.flock(file, fcntl.LOCK_EX)
        except OSError:
            pass
        _HELD.add(folder)
        try:
            yield
        finally:
            _HELD.discard(folder)
            with suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_UN)  # closing is not enough where a process was forked in between


def watch_compiling(tell: Callable[[bool], None]) -> None:
    """From now on, call `tell` with True when a kernel starts to be compiled and with False when none is any more.

    Code that is in the cache is loaded, not compiled; waiting for another process to compile counts. The call comes
    from the thread that compiles.
    """

    class Watch(event.Listener):  # type: ignore[misc]
        under_way = 0

        def on_start(self, _: object) -> None:
            self.under_way += 1
            if self.under_way == 1:
                tell(True)

        def on_end(self, _: object) -> None:
            self.under_way -= 1
            if not self.under_way:
                tell(False)

    event.register("numba:compile", Watch())
