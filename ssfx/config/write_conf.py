"""The files of conf/ that name registered components: python -m ssfx.config.write_conf writes them.

One file each for every scheme, compressor, memory, data set, model and engine; options that it does not name are those
of the declaration. A component without a file works the same; a test holds them up to date.
"""

from pathlib import Path

from ssfx.config.groups import COMPONENT_GROUPS, registry
from ssfx.core.files import write_atomic
from ssfx.core.paths import conf_dir

MARK = "# Written by `make conf`; do not edit, a file of your own can continue it."


def conf_files() -> dict[Path, str]:
    """Return the text of every file of a component, by its path below conf/."""
    found = {(group, entry.name): entry.summary for group in COMPONENT_GROUPS for entry in registry(group)}
    found["engine", "auto"] = "the engine that can run the chosen cluster from here"
    return {
        Path(group, f"{name}.yaml"): f"# {summary[0].upper()}{summary[1:]}.\n{MARK}\nname: {name}\n"
        for (group, name), summary in found.items()
    }


def write() -> None:
    """Leave the files of all components in conf/, and none of one that is gone."""
    files = conf_files()
    for group in COMPONENT_GROUPS:
        for path in (conf_dir() / group).glob("*.yaml"):
            if path.relative_to(conf_dir()) not in files and MARK in path.read_text():
                path.unlink()
    for name, text in files.items():
        (conf_dir() / name).parent.mkdir(exist_ok=True)
        write_atomic(conf_dir() / name, text)


if __name__ == "__main__":
    write()
