"""The file of a state beside a trainer's checkpoint: read as it was written, or refused in one line with its path."""

import copy
import math
from pathlib import Path
from typing import Any

import pytest
import torch

import ssfx
from ssfx.core.errors import SsfxError
from ssfx.runtime.integrations.state_files import load_state, save_state, state_file
from ssfx.runtime.sync import Sync

WRONG: list[Any] = [None, "x", -1, 1.5, math.nan, True, [1], {}, {"a": 1}, {"a": {"b": 3}}, torch.ones(2), "[" * 5000]
MAY_BE_ABSENT = ("rates", "costs", "observed", "plan_watch", "trial")


def fits(field: str, value: Any) -> bool:
    """Return whether a state may hold `value` there."""
    if isinstance(value, float | list):
        return value in {"scale": [1.5]}.get(field, [])
    return (value is None and field in MAY_BE_ABSENT) or (value == {} and field == "memory")


def attached(memory: str = "residual") -> Sync:
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 2)
    return ssfx.attach(model, torch.optim.SGD(model.parameters(), lr=0.1), scheme="topk", density=0.5, memory=memory)


def refusal(sync: Sync, checkpoint: Path) -> str:
    """Return why the file is refused; nothing was loaded then."""
    before = copy.deepcopy(sync.state_dict())
    with pytest.raises(SsfxError) as caught:
        load_state(sync, checkpoint)
    assert sync.state_dict() == before
    (line,) = str(caught.value).splitlines()
    assert str(state_file(checkpoint, 0)) in line
    return line


FIELDS = list(attached().state_dict())


@pytest.mark.parametrize("field", FIELDS)
def test_a_field_of_another_type_is_refused_and_nothing_is_loaded(tmp_path: Path, field: str) -> None:
    path = save_state(attached(), tmp_path / "checkpoint")
    good = torch.load(path)
    for wrong in WRONG:
        if not fits(field, wrong):
            torch.save({**good, field: wrong}, path)
            refusal(attached(), tmp_path / "checkpoint")
    for missing in ({}, {name: value for name, value in good.items() if name != field}):
        if field not in MAY_BE_ABSENT or not missing:
            torch.save(missing, path)
            assert "not a state of ssfx" in refusal(attached(), tmp_path / "checkpoint")


@pytest.mark.parametrize("share", [0.0, 0.3, 0.7, 0.99])
def test_a_file_that_was_cut_is_refused(tmp_path: Path, share: float) -> None:
    path = save_state(attached(), tmp_path / "checkpoint")
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    assert "damaged, or no state" in refusal(attached(), tmp_path / "checkpoint")


def test_rates_that_a_memory_needs_may_not_be_absent(tmp_path: Path) -> None:
    path = save_state(attached("lr_scaled"), tmp_path / "checkpoint")
    torch.save({**torch.load(path), "rates": None}, path)
    assert "no learning rates" in refusal(attached("lr_scaled"), tmp_path / "checkpoint")


def test_code_in_a_file_is_not_run(tmp_path: Path) -> None:
    class Hostile:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (tmp_path / "ran",)

    path = save_state(attached(), tmp_path / "checkpoint")
    torch.save({**torch.load(path), "step": Hostile()}, path)
    refusal(attached(), tmp_path / "checkpoint")
    assert not (tmp_path / "ran").exists()


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    sync = attached()
    sync.step = 7
    save_state(sync, tmp_path / "checkpoint")
    other = attached()
    load_state(other, tmp_path / "checkpoint")
    assert other.state_dict() == sync.state_dict()
    assert [path.name for path in tmp_path.iterdir()] == [state_file(tmp_path / "checkpoint", 0).name]
