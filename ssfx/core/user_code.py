"""Functions of the user's own that stand where a registered name could: pkg.mod:function, or path/to/file.py:function.

They are found, and what they say about themselves is read, without importing them; only building does that. A name
that was resolved ends in "#" and the digest of its file, so that another text is another model.
"""

import ast
import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Callable, Hashable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from ssfx.core.errors import ConfigError, unknown

SAID = ("sample", "num_values", "targets", "batch_size", "optimizer", "files")
"""What a file may say of its function."""


@dataclass(frozen=True)
class OwnCode:
    """A function in a file; `says` holds the plain values that the file assigns to attributes of the function."""

    name: str
    path: Path
    function: str
    says: dict[str, Any] = field(default_factory=dict)

    def load(self) -> Callable[..., Any]:
        """Import the file and return the function; ConfigError when the file fails."""
        module, _, _ = self.name.partition("#")[0].rpartition(":")
        try:
            found = _from_file(self.path) if module.endswith(".py") else _from_module(module)
        except Exception as error:
            raise ConfigError(f"{self.path} fails when it is imported: {type(error).__name__}: {error}") from error
        function = getattr(found, self.function)
        if not callable(function):
            raise ConfigError(f"{self.function} in {self.path} is no function")
        return function  # type: ignore[no-any-return]


def is_own(name: str) -> bool:
    """Return whether `name` is a function of the user's, not a registered name."""
    return ":" in name


def own_code(name: str) -> OwnCode:
    """Return the function that `name` names; ConfigError when there is no such file, module or function.

    ConfigError, too, when `name` ends in the digest of a text that the file no longer has.
    """
    plain, _, digest = name.partition("#")
    module, _, function = plain.rpartition(":")
    path = _path_of(module, plain)
    text = path.read_bytes()
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise ConfigError(f"{path} is no Python: {error.msg} in line {error.lineno}") from None
    says = _says(tree, function, path)
    now = hashlib.sha256(b"".join([text, *_digests(path, f"{function}.files", says.get("files", ()))])).hexdigest()[:8]
    if digest not in ("", now):
        raise ConfigError(
            f"{path}, or a file that it names, was changed since {name} was asked for; ask again with {plain}"
        )
    if function not in (found := _names(tree)):
        defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        raise unknown(f"function of {path}", function, defined or found or {"nothing"})
    return OwnCode(f"{plain}#{now}", path, function, says)


def _digests(path: Path, name: str, files: Any) -> list[bytes]:
    """Return digests of the files that a function names, by their place beside its own file, as what it reads."""
    if not isinstance(files, list | tuple) or not all(isinstance(file, str) for file in files):
        raise ConfigError(f"{name} in {path} must be a list of names of files, got {files!r}")
    found = [path.parent / file for file in files]
    if gone := next((file for file in found if not file.is_file()), None):
        raise ConfigError(f"{name} in {path} names {gone}, which is no file")
    return [_digest(file, file.stat().st_mtime_ns, file.stat().st_size) for file in found]


@cache
def _digest(file: Path, _changed_ns: int, _nbytes: int) -> bytes:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").digest()


def _path_of(module: str, name: str) -> Path:
    if module.endswith(".py"):
        path = Path(module).expanduser()
        if not path.is_file():
            raise ConfigError(f"{name}: there is no file {path.resolve()}")
        return path.resolve()
    _here_on_path()
    try:
        spec = importlib.util.find_spec(module) if module else None
    except (ImportError, ValueError):
        spec = None
    if spec is None or not spec.origin or not spec.origin.endswith(".py"):
        if Path(module).is_file():
            raise ConfigError(f"{name}: {module} is no Python file; write path/to/file.py:function")
        raise ConfigError(
            f"{name}: no module {module or '(empty)'} is installed or in {Path.cwd()}; write "
            "module:function or path/to/file.py:function"
        )
    return Path(spec.origin)


def _names(tree: ast.Module) -> set[str]:
    """Return what a module defines or imports at its top level."""
    found: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Assign):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return found


def _says(tree: ast.Module, function: str, path: Path) -> dict[str, Any]:
    """Return what `function.key = value` says at the top level: plain values, or names that stand for such there.

    ConfigError where one of SAID is neither, as to find its value the file would have to run.
    """
    found: dict[str, Any] = {}
    plain: dict[str, Any] = {}
    for node in tree.body:
        for target, value in _assigned(node):
            try:
                given = ast.literal_eval(_Named(plain).visit(deepcopy(value))) if value else None
            except (ValueError, TypeError):
                value = None
            if isinstance(target, ast.Name):
                plain.pop(target.id, None)
                plain |= {target.id: given} if value and isinstance(given, Hashable) else {}  # a list may grow later
            elif isinstance(target, ast.Attribute) and ast.unparse(target.value) == function:
                if value:
                    found[target.attr] = given
                elif target.attr in SAID:
                    raise ConfigError(
                        f"{path}, line {target.lineno}: {function}.{target.attr} must be plain values, or names of "
                        "numbers, strings or tuples above, as it is read without running the file"
                    )
    return found


def _assigned(node: ast.stmt) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    """Yield what a statement assigns to, each with its value; None where the value is not written there."""
    if isinstance(node, ast.AnnAssign) and node.value:
        yield node.target, node.value
    elif isinstance(node, ast.Assign):
        for target in node.targets:
            yield from _pairs(target, node.value)
    elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield from ((one, None) for one in _targets(node))


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for one, its in zip(target.elts, value.elts, strict=False):  # unequal ones fail when the file runs
            yield from _pairs(one, its)
    elif isinstance(target, ast.Name | ast.Attribute):
        yield target, value
    else:
        yield from ((one, None) for one in _targets(target))


def _targets(node: ast.AST) -> Iterator[ast.expr]:
    """Yield every name and attribute that is assigned to within `node`."""
    for one in ast.walk(node):
        if isinstance(one, ast.Name | ast.Attribute) and isinstance(one.ctx, ast.Store):
            yield one


class _Named(ast.NodeTransformer):
    """Puts the plain value of a name in its place."""

    def __init__(self, plain: Mapping[str, Any]) -> None:
        self.plain = plain

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(self.plain[node.id]) if node.id in self.plain else node


def _from_module(module: str) -> Any:
    _here_on_path()
    return importlib.import_module(module)


def _from_file(path: Path) -> Any:
    name = f"ssfx_own_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # before it runs: classes that are pickled for loading processes look here
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    finally:
        sys.path.remove(str(path.parent))
    return module


def _here_on_path() -> None:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)  # a console script has its own folder there instead
