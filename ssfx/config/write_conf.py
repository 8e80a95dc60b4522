"""The files of conf/ that describe registered components: python -m ssfx.config.write_conf writes them.

One file each for every scheme, compressor, memory, data set, model and engine, with its options, their defaults and
what the docstring of its options says of them. A component without a file works the same; a test holds them up to date.
"""

from collections.abc import Iterator
from pathlib import Path
from textwrap import wrap
from typing import Any

from ssfx.collectives import collectives
from ssfx.config.groups import COMPONENT_GROUPS, defaults, registry
from ssfx.config.option_text import added, described, layers, types, value
from ssfx.core.files import write_atomic
from ssfx.core.paths import conf_dir

MARK = "# Written by `make conf` from the component's declaration; do not edit, a file of your own can continue it."
WIDTH = 118


def conf_files() -> dict[Path, str]:
    """Return the text of every file of a component, by its path below conf/."""
    found = {}
    for group in COMPONENT_GROUPS:
        for entry in registry(group):
            found[Path(group, f"{entry.name}.yaml")] = _text(group, entry)
    found[Path("engine/auto.yaml")] = _lines("auto", "the engine that can run the chosen cluster from here", "")
    return found


def write() -> list[Path]:
    """Leave the files of all components in conf/, and none of one that is gone; return what changed."""
    files, changed = conf_files(), []
    for group in COMPONENT_GROUPS:
        (conf_dir() / group).mkdir(exist_ok=True)
        for path in (conf_dir() / group).glob("*.yaml"):
            if path.relative_to(conf_dir()) not in files and MARK in path.read_text():
                path.unlink()
                changed.append(path)
    for name, text in files.items():
        path = conf_dir() / name
        if not path.exists() or path.read_text() != text:
            write_atomic(path, text)
            changed.append(path)
    return changed


def _text(group: str, entry: Any) -> str:
    held = entry.defaults if group == "scheme" else getattr(entry, "options", None)
    source = getattr(entry, "source", "") or getattr(getattr(entry, "cls", None), "source", "")
    known = defaults(group, entry.name)
    notes = {name: f"{types(type(held))[name]}: {_meaning(entry, type(held), name)}".rstrip(": ") for name in known}
    options = "".join(f"{_comment(notes[name])}{name}: {_yaml(default)}\n" for name, default in known.items())
    return _lines(entry.name, entry.summary, source, *_keys(group, held)) + options


def _lines(name: str, summary: str, source: str, *more: str) -> str:
    texts = [f"{summary[0].upper()}{summary[1:]}.", f"Source: {source}." if source else "", *more]
    return "".join(map(_comment, filter(None, texts))) + f"{MARK}\nname: {name}\n"


def _keys(group: str, held: Any) -> Iterator[str]:
    """Yield what is said of the two options of schemes that are keys of their own."""
    if group == "scheme" and hasattr(held, "compressor"):
        density = f" density={value(held.density)}" if hasattr(held, "density") else ""
        yield f"Keys of their own, here by default: compressor={value(held.compressor)}{density}"


def _meaning(entry: Any, cls: type, name: str) -> str:
    """Return what docstrings say about an option: its class, one that it has the option from, or its collective's."""
    for layer in layers(cls):
        if text := described(layer).each.get(name):
            return text
    for collective in getattr(entry, "collectives", ()):
        own = type(collectives[collective].options)
        if (text := described(own).each.get(name, "")) and name in types(own):
            return f"{collective}: {text}"
    proses = {layer: described(layer).prose for layer in layers(cls)}
    named = next((text for text in proses.values() if f"`{name}`" in text), "")
    return named or next((text for layer, text in proses.items() if text and name in added(layer)), "")


def _comment(text: str) -> str:
    return "".join(f"# {line}\n" for line in wrap(text, WIDTH))


def _yaml(default: Any) -> str:
    if isinstance(default, str):
        plain = default.isidentifier() and default not in ("null", "true", "false", "yes", "no", "on", "off")
        return default if plain else f'"{default}"'
    if isinstance(default, float):
        text = repr(default)
        return text if "e" not in text or "." in text else text.replace("e", ".0e")  # YAML takes 1e-05 for text
    if isinstance(default, (list, tuple)):
        return f"[{', '.join(map(_yaml, default))}]"
    return value(default)


if __name__ == "__main__":
    for one in write():
        print(one)
