"""Random samples of every model's shapes: right, the same for a seed, others for another, and refused for quality."""

import pytest
import torch
from workloads.fakes import make_case

from ssfx.core.errors import ConfigError
from ssfx.lab.workloads import check_case, datasets, models
from ssfx.lab.workloads.catalog.synthetic import POOL
from ssfx.lab.workloads.objective import cross_entropy, logits
from ssfx.lab.workloads.samples import SAMPLES


def test_every_model_says_what_its_samples_are() -> None:
    assert set(SAMPLES) == set(models.names())


@pytest.mark.parametrize("name", [n for n in SAMPLES if n != "mask_rcnn"])
def test_a_batch_has_the_shapes_and_the_vocabulary_of_the_model(name: str) -> None:
    sample = SAMPLES[name]
    inputs, targets = datasets.build(f"synthetic(model={name})").train_loader(0, 1, 2, 0)[0]
    assert inputs.shape == (2, *sample.shape)
    assert inputs.dtype == (torch.int64 if sample.of_tokens else torch.float32)
    assert targets.dtype == torch.int64
    limit = sample.shape[0] if sample.targets == "span" else sample.num_values
    assert int(targets.max()) < limit
    if sample.of_tokens:
        assert 0 <= int(inputs.min()) <= int(inputs.max()) < sample.num_values


def test_batches_are_of_a_seed_a_rank_and_an_index_and_come_round_again() -> None:
    data = datasets.build("synthetic(model=resnet_tiny)")
    first, again = data.train_loader(0, 2, 4, 3), data.train_loader(0, 2, 4, 3)
    other_rank, other_seed = data.train_loader(1, 2, 4, 3), data.train_loader(0, 2, 4, 4)
    for index in (2, 0, 3):
        assert torch.equal(first[index][0], again[index][0])
    assert first[0][0] is first[POOL][0]  # made once
    for other in (first[1], other_rank[0], other_seed[0]):
        assert not torch.equal(first[0][0], other[0])


def test_boxes_lie_in_the_image_and_have_an_area() -> None:
    images, boxes = datasets.build("synthetic(model=mask_rcnn)").train_loader(0, 1, 1, 0)[0]
    height, width = images.shape[-2:]
    left, top, right, bottom = boxes[..., 1:].unbind(-1)
    assert 0 <= float(images.min()) <= float(images.max()) <= 1
    assert bool(((right > left) & (bottom > top)).all())
    assert float(right.max()) <= width
    assert float(bottom.max()) <= height
    assert 1 <= int(boxes[..., 0].min()) <= int(boxes[..., 0].max()) < 91


def test_quality_on_random_samples_is_refused() -> None:
    case = make_case(model="resnet_tiny", dataset="synthetic(model=resnet_tiny)")
    check_case(case)
    with pytest.raises(ConfigError, match="no held-out part"):
        check_case(make_case(model="resnet_tiny", dataset="synthetic(model=resnet_tiny)", evaluate=True))


def test_tf32_is_for_gpus() -> None:
    with pytest.raises(ConfigError, match=r"precision=tf32 .* needs device=cuda"):
        check_case(make_case(precision="tf32"))


def test_gnmt_attends_to_no_padding_and_sees_no_later_target() -> None:
    from ssfx.lab.workloads.nets.recurrent import Gnmt

    torch.manual_seed(0)
    model = Gnmt(vocabulary=11, width=8, layers=3, dropout=0.0).eval()
    tokens = torch.randint(1, 11, (2, 2, 6))
    out = logits(model, tokens)
    assert out.shape == (2, 6, 11)
    later = tokens.clone()
    later[:, 1, 4:] = 1 + later[:, 1, 4:] % 10
    assert torch.equal(logits(model, later)[:, :4], out[:, :4])
    memory = torch.randn(2, 6, 8)
    padding = torch.tensor([[False] * 4 + [True] * 2] * 2)
    changed = memory.clone()
    changed[:, 4:] += 1
    asks = torch.randn(2, 3, 8)
    assert torch.equal(model.attention(asks, memory, padding), model.attention(asks, changed, padding))


def test_bert_trains_on_both_of_its_tasks() -> None:
    from ssfx.lab.workloads.nets.hugging_face import bert_pretraining, bert_qa

    tokens = torch.randint(5, 50, (2, 9))
    reader = bert_qa(width=8, layers=1, heads=2, vocabulary=50).eval()
    assert logits(reader, tokens).shape == (2, 2, 9)
    packed = torch.stack((tokens, torch.ones_like(tokens), torch.zeros_like(tokens)), dim=1)
    assert torch.allclose(logits(reader, packed), logits(reader, tokens), atol=1e-6)
    short = packed.clone()
    short[:, 1, 6:] = 0  # padding, which nothing may depend on
    other = short.clone()
    other[:, 0, 6:] = 1
    assert torch.allclose(logits(reader, short)[..., :6], logits(reader, other)[..., :6], atol=1e-6)

    model = bert_pretraining(width=8, layers=1, heads=2, vocabulary=50)
    targets = torch.full((2, 10), -100)
    targets[:, 0] = torch.tensor([0, 1])
    targets[:, 3] = 7
    cross_entropy(model, tokens, targets).backward()
    assert [n for n, p in model.named_parameters() if p.grad is None] == []


@pytest.mark.slow
def test_mask_rcnn_has_a_loss_with_gradients_everywhere() -> None:
    from ssfx.lab.workloads.nets.torchvision_import import MaskRcnn

    torch.manual_seed(0)
    model = MaskRcnn(num_classes=5, shorter_side=96)
    boxes = torch.tensor([[[1.0, 10, 10, 60, 50], [4.0, 30, 20, 90, 90]]])
    loss = cross_entropy(model, torch.rand(1, 3, 96, 128), boxes)
    loss.backward()
    assert loss.isfinite()
    assert [n for n, p in model.named_parameters() if p.grad is None] == []
