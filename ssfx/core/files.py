"""Files that are either whole or absent, and results that are either right or refused in one line."""

import errno
import gzip
import io
import json
import os
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, TypeVar

from ssfx.core.errors import ConfigError, RunError, SsfxError

T = TypeVar("T")

DAMAGED = (ValueError, KeyError, TypeError, AttributeError, IndexError, ArithmeticError, RecursionError)
"""What parsing raises for a file that is damaged, or of another version."""

MOST_UNPACKED_BYTES = 2**30
"""No trace or list of rows is larger; 3 MB of gzip may hold 3 GB."""

_LINK = "it is a symbolic link, and results are not kept through links; remove it"


def open_unlinked(path: str | Path, flags: int) -> int:
    """Return the number of a file opened with `flags`; OSError where it is a symbolic link, which is not followed."""
    try:
        return os.open(path, flags | os.O_NOFOLLOW, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, _LINK, str(path)) from None
        raise


def created(path: Path, mode: str = "w", flags: int = 0) -> IO[Any]:
    """Return `path` opened for writing, made anew; OSError where it is a symbolic link, which is not followed."""

    def opener(name: str, given: int) -> int:
        return open_unlinked(name, given | flags)

    return open(path, mode, encoding=None if "b" in mode else "utf-8", opener=opener)


def own_folder(folder: Path) -> None:
    """Make `folder` exist, with those above it; OSError where it is a symbolic link, which is not followed."""
    if folder.is_symlink():
        raise OSError(errno.ELOOP, _LINK, str(folder))
    folder.mkdir(parents=True, exist_ok=True)


@contextmanager
def replacing(path: Path, mode: str = "w") -> Iterator[IO[Any]]:
    """Give a file that becomes `path` at the end, as a whole; nothing is left of it when the body raises."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.unlink(missing_ok=True)  # of a process that had the same number, or a link that somebody laid
    try:
        with created(temporary, mode, os.O_EXCL) as file:
            yield file
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def as_it_is(path: Path) -> str:
    """Return what tells a file from others, and from itself once it was changed; "" where there is none."""
    try:
        found = path.stat()
    except OSError:
        return ""
    return f"{path.resolve()} {found.st_mtime_ns} {found.st_size}"


def write_atomic(path: Path, text: str) -> None:
    """Make `path` hold exactly `text`; a crash at any moment leaves the old file or the new one, never a part.

    The directory is synced too, so that the file is still there after a power cut. An OSError names the path and, where
    the disk is full, how much is needed and free.
    """
    try:
        with replacing(path) as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise of_writing(error, path, len(text)) from None
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def check_writable(folder: Path, instead: str) -> Path:
    """Return `folder`, which exists now and can be written to; ConfigError that says what to do `instead` if not."""
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"cannot write to {folder}: it is no folder; {instead}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError as error:
        raise ConfigError(f"cannot write to {folder}: {error.strerror}; {instead}") from None


def numbered(folder: Path, prefix: str) -> list[int]:
    """Return the numbers of the entries of `folder` that are called `prefix` and a number, ascending; [] without it."""
    names = [path.name.removeprefix(prefix) for path in folder.glob(f"{prefix}*")]
    return sorted(int(name) for name in names if name.isascii() and name.isdecimal() and str(int(name)) == name)


def write_json(path: Path, text: str) -> None:
    """Make `path` hold the JSON `text` and a line break, as `write_atomic` does."""
    write_atomic(path, text.strip() + "\n")


def is_full(error: OSError) -> bool:
    """Return whether the system refused to write because the disk, or the user's share of it, is full."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def of_writing(error: OSError, path: Path, needed_bytes: int) -> OSError:
    """Return `error` with the path and, where the disk is full, what was to be written and what is free."""
    said, number, free = error.strerror or str(error), error.errno, free_bytes(path)
    if is_full(error) or (number is None and free < needed_bytes):  # libraries lose the number
        said = f"{os.strerror(errno.ENOSPC)}, {megabytes(needed_bytes)} needed and {megabytes(free)} free"
        number = errno.ENOSPC
    return OSError(number, said, str(path))


def free_bytes(path: Path) -> int:
    """Return the bytes that are free where `path` is, or will be."""
    there = next(folder for folder in (path, *path.parents) if folder.exists())
    return shutil.disk_usage(there).free


def megabytes(nbytes: int) -> str:
    """Return a number of bytes for people, in MB of a million."""
    return f"{nbytes / 1e6:.3g} MB" if nbytes < 1e8 else f"{nbytes / 1e6:,.0f} MB"


def loads(text: str) -> Any:
    """Return what JSON `text` holds; ValueError when it is none. As in the standard, NaN and infinities are no JSON.

    The digest that earlier versions added to an object is left out.
    """
    found = _DECODER.decode(text.strip())
    if isinstance(found, dict):
        for name in ("content_sha256", "blessed"):
            found.pop(name, None)
    return found


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


_DECODER = json.JSONDecoder(parse_constant=_no_number)


def read(path: Path, parse: Callable[[str], T], *, what: str = "", error: type[SsfxError] = RunError) -> T:
    """Return what `parse` makes of the JSON file `path`; `error`, in one line with the path, where that is impossible.

    `what` says what a file is then and what to do about it: "not a plan: run the case again".
    """
    text = text_of(path, error)
    try:
        return parse(text)
    except SsfxError as own:
        raise error(f"{path}: {own}") from None
    except DAMAGED as broken:
        raise error(_unreadable(path, broken, what)) from None


def read_json(path: Path) -> Any:
    """Return what the JSON file `path` holds; RunError with file and line when it is corrupt."""
    return read(path, loads)


def _unreadable(path: Path, broken: Exception, what: str) -> str:
    reason = " ".join(f"{type(broken).__name__}: {broken}".split())
    if what:
        noun, _, hint = what.partition(": ")
        return f"{path} is {noun} ({reason}); {hint}"
    if isinstance(broken, json.JSONDecodeError):
        return f"{path}:{broken.lineno}: not JSON ({broken.msg})"
    return f"{path}:1: not what it should be ({reason})"


def text_of(path: Path, error: type[SsfxError] = RunError) -> str:
    """Return the text of a file, that in a .gz unpacked; `error` with the path when it cannot be read or is no text."""
    try:
        if path.suffix == ".gz":
            return unpacked(path.read_bytes()).decode()
        return path.read_text(encoding="utf-8")
    except (EOFError, zlib.error, gzip.BadGzipFile) as broken:
        raise error(f"{path}:1: not what gzip packs ({broken})") from None
    except UnicodeDecodeError as broken:
        raise error(f"{path}:1: not text ({broken.reason})") from None
    except OSError as broken:
        raise error(f"{path} cannot be read: {broken.strerror or broken}") from None


def unpacked(data: bytes) -> bytes:
    """Return what gzip packed in `data`; OSError once that is more than MOST_UNPACKED_BYTES, so memory is bounded."""
    found = io.BytesIO()
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
        while part := file.read(2**20):
            found.write(part)
            if found.tell() > MOST_UNPACKED_BYTES:
                raise OSError(errno.EFBIG, f"it unpacks to more than {MOST_UNPACKED_BYTES / 2**30:g} GiB")
    return found.getvalue()


def set_aside(path: Path) -> None:
    """Nothing is at `path`; a damaged file or folder that was there is beside it, with ".damaged" added to its name."""
    aside = path.with_name(f"{path.name}.damaged")
    if aside.is_dir():
        shutil.rmtree(aside)
    path.replace(aside)
