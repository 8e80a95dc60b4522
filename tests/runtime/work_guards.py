"""What is said by an error."""

from collections.abc import Callable
from typing import Any

from ssfx.core.errors import ConfigError


def error_of(work: Callable[[], Any], kind: type[Exception] = ConfigError) -> str:
    """Return the text of the error that `work` ends with, "" for none."""
    try:
        work()
    except kind as error:
        return str(error)
    return ""
