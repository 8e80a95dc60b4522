"""What a measurement does to the caches before it times a call."""

import pytest
import torch

from ssfx.lab.calibration import measure_compressors as cold
from ssfx.lab.workloads import datasets
from ssfx.lab.workloads.objective import cross_entropy
from ssfx.lab.workloads.profiling import Loop


@pytest.mark.parametrize(
    ("text", "size"), [("64K", 2**16), ("32768K\n", 2**25), ("none", 32 * 2**20), (None, 32 * 2**20)]
)
def test_as_much_is_read_as_the_largest_cache_holds(tmp_path, monkeypatch, text, size):
    path = tmp_path / "size"
    if text is not None:
        path.write_text(text)
    monkeypatch.setattr(cold, "_LAST_CACHE", path)
    cold._other.cache_clear()
    cold.forget_data()
    assert cold._other().nbytes == size
    cold._other.cache_clear()


def test_gradients_that_were_moved_are_what_they_were():
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(1024, 10))
    batches = datasets.build("digits").train_loader(0, 1, 4, 0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loop = Loop(model, optimizer, batches.__getitem__, lambda batch: cross_entropy(model, *batch), torch.device("cpu"))
    loop.move_gradients()  # before the first backward pass there are none
    loop.run(0)
    before = [parameter.grad.clone() for parameter in model.parameters()]
    loop.move_gradients()
    assert all(torch.equal(parameter.grad, grad) for parameter, grad in zip(model.parameters(), before, strict=True))
    assert any(grad.any() for grad in before)
