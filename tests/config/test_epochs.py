"""preset=paper: as many steps as the authors' epochs are on the ranks at hand, with their schedule."""

import pytest

from ssfx.config.compose import compose
from ssfx.config.schema import Settings
from ssfx.core.errors import ConfigError
from ssfx.lab.config.epochs import with_recipe, with_steps

TRAINED = (
    "resnet152_imagenet",
    "resnet152_cifar100",
    "vgg19_imagenet",
    "vit_large_imagenet",
    "bert_base_squad",
    "bert_large_squad",
    "gpt2_large_wikitext103",
    "lstm_wikitext2",
)


@pytest.mark.parametrize("workload", TRAINED)
def test_more_ranks_take_fewer_steps_for_the_same_epochs(workload: str) -> None:
    found = [
        Settings.of(
            with_steps(compose({"workload": workload, "preset": "paper", "world_size": ranks, "device": "cpu"}))
        )
        for ranks in (8, 64)
    ]
    samples = [one.steps * one.batch_size * ranks for one, ranks in zip(found, (8, 64), strict=True)]
    assert samples[0] == pytest.approx(samples[1], rel=0.2)  # incomplete global batches are dropped
    assert found[0].steps > found[1].steps


def test_the_recipe_of_resnet152_is_the_authors() -> None:
    config = with_steps(
        compose({"workload": "resnet152_imagenet", "preset": "paper", "world_size": 64, "device": "cpu"})
    )
    found = Settings.of(config)
    assert found.steps == 80 * (1281167 // (64 * 32))
    assert (found.lr, found.scale_lr_by_ranks, found.lr_warmup * 80) == (0.0125, True, 5)
    assert [at * 80 for at in found.milestones] == [30, 60]


def test_steps_that_are_given_stay() -> None:
    assert with_steps(compose({"workload": "bert_base_squad", "preset": "paper", "steps": 30}))["steps"] == 30


@pytest.mark.parametrize(
    "point", [{"workload": "digits_resnet"}, {"workload": "bert_base_squad", "dataset": "generated_questions"}]
)
def test_without_epochs_steps_must_be_given(point: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"set steps=\.\.\."):
        with_steps(compose({"preset": "paper", **point}))


@pytest.mark.parametrize(
    ("model", "dataset", "workload"),
    [
        ("bert_large", "squad", "bert_large_squad"),
        ("bert_large", "squad(tokenizer=bpe)", "bert_large_squad"),
        ("resnet152", "imagenet", "resnet152_imagenet"),
        ("resnet152", "synthetic", None),
        ("resnet_tiny", "digits", None),
    ],
)
def test_the_recipe_is_that_of_the_model_on_its_data(model: str, dataset: str, workload: str | None) -> None:
    request = {"preset": ("paper",), "model": (model,), "dataset": (dataset,)}
    chosen = with_recipe(request).get("workload")
    assert chosen == ((workload,) if workload else None)
    assert with_recipe({**request, "preset": ("smoke",)}) == {**request, "preset": ("smoke",)}
    assert with_recipe({**request, "workload": ("digits_vgg",)})["workload"] == ("digits_vgg",)


def test_the_error_names_a_recipe_with_the_same_data() -> None:
    with pytest.raises(ConfigError, match="choose workload=resnet152_cifar100"):
        with_steps(compose({"preset": "paper", "model": "resnet152_cifar100"}))


def test_only_the_papers_epochs_end_with_quality() -> None:
    for workload, preset, expected in (
        ("bert_large_squad", "paper", True),
        ("bert_large_squad", "smoke", False),
        ("mini_vgg", "smoke", True),
        ("mask_rcnn_synthetic", "paper", False),
    ):
        assert compose({"workload": workload, "preset": preset})["evaluate"] is expected
