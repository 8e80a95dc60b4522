"""The golden cases of the collectives, by id."""

import json
from pathlib import Path
from typing import Any

Case = dict[str, Any]

CASES: dict[str, Case] = {
    case["id"]: case
    for case in json.loads((Path(__file__).parents[1] / "data" / "golden_collectives.json").read_text())["cases"]
}


def of_scheme(scheme: str) -> list[str]:
    """Return the ids of the cases of one scheme."""
    return [name for name, case in CASES.items() if case["scheme"] == scheme]
