"""All public configuration keys, the surface that a golden file holds still.

python -m ssfx.config.keys > tests/config/golden_keys.txt
"""

from ssfx.config.groups import GROUPS, OPTION_GROUPS, choices, options
from ssfx.config.schema import KEYS


def public_keys() -> list[str]:
    """Return every key that may stand before "=": groups, options of groups, top-level keys."""
    dotted = {
        f"{group}.{option}" for group in OPTION_GROUPS for name in choices(group) for option in options(group, name)
    }
    return sorted({*GROUPS, *KEYS, *dotted})


if __name__ == "__main__":
    print("\n".join(public_keys()))
