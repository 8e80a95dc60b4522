"""What a scheme asks of the runtime is one typed object; nothing outside the schemes reads their options by name."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ssfx
from ssfx.schemes import schemes
from ssfx.schemes.online_planning import OnlinePlanning, PlanLimits

PACKAGE = Path(ssfx.__file__).parent
OUTSIDE = [path for path in sorted(PACKAGE.rglob("*.py")) if path.relative_to(PACKAGE).parts[0] != "schemes"]


def by_name(text: str) -> Iterator[int]:
    """Yield the lines that ask options for an attribute by its name: those of a name, an attribute or a call."""
    options: set[str] = {"options", "defaults"}
    tree = ast.parse(text)

    def are_options(node: ast.expr) -> bool:
        if isinstance(node, ast.Call):
            return isinstance(node.func, ast.Attribute) and node.func.attr == "options"
        return (isinstance(node, ast.Name) and node.id in options) or (
            isinstance(node, ast.Attribute) and node.attr in options
        )

    for node in ast.walk(tree):
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None and are_options(node.value):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            options |= {target.id for target in targets if isinstance(target, ast.Name)}
    for node in ast.walk(tree):
        asks = isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("getattr", "hasattr")
        if asks and are_options(node.args[0]):  # type: ignore[attr-defined]
            yield node.lineno


def test_options_asked_by_name_are_seen() -> None:
    seen = "getattr(options, 'a')\nhasattr(scheme.defaults, 'a')\nchosen = one.options(x)\ngetattr(chosen, 'a', 0)"
    assert list(by_name(seen)) == [1, 2, 4]


def test_no_options_are_asked_by_name_outside_the_schemes() -> None:
    asking = {str(path.relative_to(PACKAGE)): list(by_name(path.read_text())) for path in OUTSIDE}
    assert not {name: lines for name, lines in asking.items() if lines}, "Scheme.online has a type for what they say"


@pytest.mark.parametrize("name", sorted(entry.name for entry in schemes))
def test_every_scheme_says_what_it_observes_and_compresses_with(name: str) -> None:
    entry = schemes[name]
    online = entry.online({})
    assert online.compressor == entry.compressor
    assert online.observed_steps == (0 if entry.in_rounds else 5 if entry.profiled else 1)
    assert (online.limits is not None) == (online.to_measure is not None) == entry.chooses
    assert online.density_warmup_steps == online.run_steps == 0


@pytest.mark.parametrize(
    ("scheme", "given", "asked"),
    [
        ("ddp", {"rebuild": False, "compressor": "fp16"}, {"observed_steps": 0, "compressor": "fp16"}),
        ("hierarchical", {"rebuild": False}, {"observed_steps": 0}),
        ("per_tensor", {"density_warmup": 8, "density": 0.1}, {"density_warmup_steps": 8, "density": 0.1}),
        ("ssfusion_oi", {"profile_iters": 7}, {"observed_steps": 7}),
        ("omgs", {"profile_iters": 7}, {"observed_steps": 7}),
        ("mergecomp", {"profile_iters": 7}, {"observed_steps": 7}),
        (
            "auto",
            {"trial_iters": 2, "run_steps": 9, "compressor": "topk"},
            {"trial_steps": 2, "run_steps": 9, "compressor": "topk"},
        ),
    ],
)
def test_options_arrive_as_what_they_ask(scheme: str, given: dict[str, Any], asked: dict[str, Any]) -> None:
    online = schemes[scheme].online(given)
    assert {name: getattr(online, name) for name in asked} == asked


def test_auto_holds_plans_to_its_limits() -> None:
    limits = schemes["auto"].online({"replan_after": 3, "replan_above": 0.5}).limits
    assert limits == PlanLimits(window_steps=3, time_change=0.5)


def test_the_length_and_the_clipping_of_a_run_and_the_size_of_a_node_go_to_schemes_that_ask() -> None:
    auto, ddp = schemes["auto"], schemes["ddp"]
    assert auto.for_run({}, 50, True) == {"run_steps": 50, "clipped": True}
    assert auto.for_run({"run_steps": 7, "clipped": None}, 50, True) == {"run_steps": 7, "clipped": None}
    assert auto.for_nodes({}, 4) == {"ranks_per_node": 4}
    assert schemes["hierarchical"].for_nodes({"ranks_per_node": 2}, 4) == {"ranks_per_node": 2}
    assert ddp.for_run({}, 50, True) == ddp.for_nodes({}, 4) == {}


def test_a_scheme_that_says_nothing_observes_one_step_and_keeps_its_plan() -> None:
    assert OnlinePlanning() == OnlinePlanning(observed_steps=1, trial_steps=0, limits=None)
