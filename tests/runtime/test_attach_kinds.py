"""Arguments of `attach` of another kind, or of another library: one line that says what is meant."""

import pytest
import torch
from torch import nn

import ssfx
from ssfx.core.errors import ConfigError

WRONG = {
    "schema": ("ddp", "did you mean scheme?"),
    "scheme": (["ddp", "topk"], "given by its name"),
    "compressor": (3, "compressor is text"),
    "memory": (True, "memory is text"),
    "density": ([0.1], "density is the kept fraction"),
    "scaler": (True, "GradScaler"),
    "process_group": ("gloo", "torch.distributed.new_group"),
    "costs": ("64gpu", "no name of a cluster"),
    "profile": ("mine.json", "Profile.from_json"),
    "accumulate": (2, "sync.no_sync()"),
    "max_grad_norm": (1.0, "clip between backward"),
    "cluster": ("64gpu", "key of ssfx advise"),
    "error_feedback": (True, 'memory="residual"'),
    "exempt": (None, "() for none; got None"),
    "trace": ("yes", "trace is True or False"),
    "broadcast_buffers": ("no", "broadcast_buffers is True or False"),
    "bucket_cap_mb": (25, "argument of DistributedDataParallel"),
}


def parts():
    model = nn.Linear(4, 2)
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


@pytest.mark.parametrize("exempt", [3, [3], object(), "vector"])
def test_kinds_that_are_exempt_are_words(exempt):
    with pytest.raises(ConfigError, match="exempt"):
        ssfx.attach(*parts(), exempt=exempt)


@pytest.mark.parametrize("name", WRONG)
def test_an_argument_of_another_kind_is_one_line(name):
    value, said = WRONG[name]
    with pytest.raises(ConfigError, match=r".") as error:
        ssfx.attach(*parts(), **{"scheme": "ddp", name: value})
    assert said in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (lambda model, optimizer: (optimizer, model), "model comes first"),
        (lambda model, optimizer: (model.state_dict(), optimizer), "the module itself"),
        (lambda model, optimizer: (model.parameters(), optimizer), "the module itself"),
        (lambda model, optimizer: (model, "sgd"), "torch.optim.Optimizer"),
    ],
)
def test_what_is_no_model_or_no_optimizer_is_one_line(given, said):
    with pytest.raises(ConfigError) as error:
        ssfx.attach(*given(*parts()))
    assert said in str(error.value)


def test_the_scheme_may_be_the_third_argument():
    sync = ssfx.attach(*parts(), "topk", density=0.5)
    assert sync.scheme.name == "topk"
    sync.detach()
