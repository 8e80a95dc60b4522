"""Where results go."""

from pathlib import Path

import pytest

from ssfx.core.paths import results_dir


@pytest.mark.parametrize(("value", "folder"), [(None, "results"), ("", "results"), ("elsewhere", "elsewhere")])
def test_an_empty_variable_is_as_good_as_none(
    value: str | None, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SSFX_RESULTS", raising=False)
    if value is not None:
        monkeypatch.setenv("SSFX_RESULTS", value)
    assert results_dir() == tmp_path.resolve() / folder
