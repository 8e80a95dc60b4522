"""Long products of cases: some of them for every change, all of them every night."""

from collections.abc import Iterable
from typing import Any

import pytest


def thinned(cases: Iterable[Any], every: int = 3) -> list[Any]:
    """Return the cases, of which all but every `every`-th are left to `make test-all`; a tuple is several values.

    For products that take minutes and whose cases seldom fail alone: what breaks a case breaks its neighbours.
    """
    return [_nightly(case) if n % every else case for n, case in enumerate(cases)]


def _nightly(case: Any) -> Any:
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=pytest.mark.nightly)
