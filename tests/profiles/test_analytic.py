"""Counting work: on layers one can count by hand, against real backward passes, and against what is shipped."""

import pytest
import torch
from torch import Tensor, nn

from ssfx.lab.workloads import analytic, models
from ssfx.lab.workloads.analytic import COUNTABLE, SAMPLES, count_work
from ssfx.lab.workloads.base import Model
from ssfx.lab.workloads.objective import cross_entropy
from ssfx.lab.workloads.samples import Sample
from ssfx.perf_model.operator_counts import COLUMNS, ModelWork, model_work


@pytest.fixture
def count(monkeypatch: pytest.MonkeyPatch):
    """Count a network that is not in the catalog; its samples are vectors, so that they are floats."""

    def counting(build, shape: tuple[int, ...], tokens: bool = False) -> ModelWork:
        entry = Model("mine", "made up", "vectors", build, 2, "test")
        monkeypatch.setattr(analytic, "models", {"mine": entry})
        sample = Sample(shape, "sgd")
        monkeypatch.setitem(SAMPLES, "mine", sample)
        if not tokens:
            monkeypatch.setattr(
                Sample, "batch", lambda _, size: torch.zeros(size, *shape, device="meta", requires_grad=False)
            )
        return count_work("mine")

    return counting


def row(work: ModelWork, passed: str, tensor: str) -> dict[str, float]:
    position = [spec.name for spec in work.tensors].index(tensor)
    return dict(zip(COLUMNS, work.rows[getattr(work, passed)[position]], strict=True))


def test_a_linear_layer(count) -> None:
    work = count(lambda: nn.Linear(3, 5, bias=False), (3,))
    forward, backward = row(work, "forward", "weight"), row(work, "backward", "weight")
    assert work.flops() == (2 * 3 * 5, 2 * 3 * 5)  # the input needs no gradient
    assert forward["matmul_bytes"] == 4 * (3 + 5)
    assert forward["matmul_bytes_fixed"] == backward["matmul_bytes_fixed"] == 4 * 15
    assert forward["kernels"] >= 2  # the product and the loss


def test_work_belongs_to_the_tensor_it_is_done_for(count) -> None:
    work = count(lambda: nn.Sequential(nn.Linear(3, 7, bias=False), nn.ReLU(), nn.Linear(7, 5, bias=False)), (3,))
    assert [spec.name for spec in work.tensors] == ["2.weight", "0.weight"]
    assert row(work, "forward", "0.weight")["matmul_flops"] == 2 * 3 * 7
    assert row(work, "forward", "2.weight")["matmul_flops"] == 2 * 7 * 5
    last, first = row(work, "backward", "2.weight"), row(work, "backward", "0.weight")
    # The product for the weight may come before or after the one for the layer's input.
    assert last["matmul_flops"] + first["matmul_flops"] == 2 * 2 * 7 * 5 + 2 * 3 * 7
    assert first["matmul_flops"] >= 2 * 3 * 7


def test_a_convolution_counts_both_gradients_and_keeps_its_input(count) -> None:
    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Conv2d(2, 4, 3, padding=1, bias=False)
            self.second = nn.Conv2d(4, 4, 3, padding=1, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            return self.second(self.first(x)).flatten(1)

    work = count(Network, (2, 8, 8))
    one, two = 2 * 64 * 9 * 2 * 4, 2 * 64 * 9 * 4 * 4
    assert work.flops() == (one + two, one + 2 * two)
    assert row(work, "backward", "second.weight")["conv_flops"] == 2 * two
    assert row(work, "forward", "first.weight")["kernels"] == 1
    kept_by_convolutions, kept_by_loss = 4 * (2 + 4) * 64, 4 * 4 * 64
    assert work.activation_bytes >= kept_by_convolutions + kept_by_loss


def test_an_lstm_counts_one_product_for_each_gradient(count) -> None:
    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(6, 4, num_layers=2, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            return self.lstm(x)[0]

    work = count(Network, (5, 6))
    steps, gates = 5, 16
    forward = 2 * steps * gates * (6 + 4) + 2 * steps * gates * (4 + 4)
    assert work.flops() == (forward, 2 * forward)
    assert row(work, "forward", "lstm.weight_hh_l0")["kernels"] == 2 * steps
    assert len(work.tensors) == 8


def test_dropout_of_nothing_is_free(count) -> None:
    def network(p: float):
        return lambda: nn.Sequential(nn.Linear(3, 5), nn.Dropout(p), nn.Linear(5, 2))

    without, some, none = (count(network(p), (3,)) for p in (0.0, 0.5, 0.0))
    assert without == none
    assert some.activation_bytes - without.activation_bytes == 5  # a mask of one byte each


@pytest.mark.parametrize("size", [2, 20])
def test_few_flops_that_no_sample_adds_to_are_left_out_and_more_are_refused(count, size: int) -> None:
    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(500, 500, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            table = torch.ones(size, size) @ torch.ones(size, size)
            return self.layer(x) + table.sum()

    if size == 20:
        with pytest.raises(RuntimeError, match="some FLOPs do not grow with the batch size"):
            count(Network, (500,))
    else:
        assert count(Network, (500,)).flops()[0] == 2 * 500 * 500


def test_a_layer_that_a_random_number_may_leave_out_is_counted(count) -> None:
    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            found = self.first(x)
            return found if torch.rand([]) < 0.1 else self.second(found)

    assert count(Network, (3,)).flops()[0] == 2 * 2 * 3 * 3


def test_a_parameter_without_a_gradient_is_reported(count) -> None:
    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.idle = nn.Linear(3, 2), nn.Linear(3, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.used(x)

    with pytest.raises(RuntimeError, match=r"no gradient for idle\.weight"):
        count(Network, (3,))


@pytest.mark.parametrize("name", ["resnet_tiny", "lstm_tiny"])
def test_the_order_is_that_of_a_real_backward_pass(name: str) -> None:
    network = models[name].build()
    order: list[str] = []
    for key, parameter in network.named_parameters():
        parameter.register_post_accumulate_grad_hook(lambda _, key=key: order.append(key))
    tokens = name == "lstm_tiny"
    inputs = torch.zeros(2, 4, dtype=torch.long) if tokens else torch.randn(2, 1, 32, 32)
    cross_entropy(network, inputs, torch.zeros((2, 4) if tokens else 2, dtype=torch.long)).backward()
    counted = [spec.name for spec in model_work(name).tensors]
    if tokens:  # which of a layer's four tensors comes first is the LSTM implementation's business
        assert [key.rpartition("_")[2] for key in counted] == [key.rpartition("_")[2] for key in order]
    else:
        assert counted == order


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(COUNTABLE))
def test_shipped_work_is_up_to_date(name: str) -> None:
    """FLOPs and order are the model's; how operators are cut into kernels may change a little with torch's version."""
    shipped, now = model_work(name), count_work(name)
    # Transformers renames parts, and libraries older than the counts move a few bytes: shapes and order are alike.
    counted_by, here = (tuple(map(int, work.versions["torch"].split(".")[:2])) for work in (shipped, now))
    older = here < counted_by
    shapes, counted = ([spec.shape for spec in work.tensors] for work in (shipped, now))
    assert shapes == counted
    assert shipped.tensors == now.tensors or older
    assert shipped.flops() == now.flops()
    assert (shipped.inputs, shipped.batch_size, shipped.optimizer) == (now.inputs, now.batch_size, now.optimizer)
    assert shipped.activation_bytes == pytest.approx(now.activation_bytes, rel=0.1)
    for passed in ("forward", "backward"):
        totals = [
            [sum(column) for column in zip(*(work.rows[i] for i in getattr(work, passed)), strict=True)]
            for work in (shipped, now)
        ]
        grow, fixed = ([total[part] for total in totals] for part in (slice(6), slice(6, 9)))
        assert grow[0] == pytest.approx(grow[1], rel=0.1), passed
        for column, (a_sample, *both) in enumerate(zip(grow[1][3:], *fixed, strict=True), 6):
            near = 0.01 * a_sample if older else None
            assert both[0] == pytest.approx(both[1], rel=0.1, abs=near), (passed, COLUMNS[column])
