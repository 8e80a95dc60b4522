"""Copies of an attached model exchange nothing; what scripts do to DDP's wrapper works, or is said to do nothing."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
from runtime import work_habits as work
from runtime.models import build
from runtime.pool import Pool
from runtime.test_guards import said
from runtime.work_attach import SPARSE

from ssfx.runtime.checks import ARGUMENTS
from ssfx.schemes import schemes

OPTIONS: dict[str, dict[str, Any]] = {
    "ddp": {},
    "topk": SPARSE,
    "observes": {"scheme": "ssfusion_oi", "density": 0.05},
    "watches": {"scheme": "auto"},
}


@pytest.mark.parametrize("how", work.COPIES)
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_a_copy_exchanges_nothing(pool: Pool, options: dict[str, Any], how: str) -> None:
    for report in pool.run(work.copied, 2, how, options):
        assert all(report.values()), report


def test_a_copy_may_train_inside_ddp(pool: Pool) -> None:
    assert pool.run(work.copy_inside_ddp, 2) == [True, True]


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, SPARSE | {"density": 1.0}], ids=["ddp", "topk-1"])
@pytest.mark.parametrize("habit", ["attribute", "no_sync", "compiled", "compiled later"])
def test_accumulation_as_with_ddp(pool: Pool, habit: str, options: dict[str, Any]) -> None:
    for report in pool.run(work.accumulates, 2, habit, options):
        assert report["exchanges"] == 5
        assert report["distance"] < 1e-5
        assert report["lines"] == []


@pytest.mark.parametrize("name", ["require_forward_param_sync", "find_unused_parameters", "broadcast_buffers"])
def test_an_attribute_of_ddp_without_effect_is_said_once(pool: Pool, name: str) -> None:
    for lines, names in pool.run(work.attributes, 2, name):
        assert len(lines) == 1
        said(lines[0], name, "DistributedDataParallel", "attach.md")
        assert names == list(build("mlp").state_dict())


@pytest.mark.parametrize("name", ARGUMENTS)
def test_an_argument_of_ddp_is_told_what_holds_instead(pool: Pool, name: str) -> None:
    for text in pool.run(work.argument, 2, name):
        said(text, name, "DistributedDataParallel", ARGUMENTS[name])
    assert not any(name in {f.name for f in fields(scheme.defaults)} for scheme in schemes)


def test_nothing_of_the_model_is_hidden(pool: Pool) -> None:
    assert pool.run(work.own_no_sync, 2) == [["its own", False, "its own"]] * 2
