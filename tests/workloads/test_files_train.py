"""Every kind of file trains on two real ranks, dense and compressed, and goes on where it was cut."""

import math
from collections.abc import Iterator
from pathlib import Path

import pytest
from runtime.pool import Pool
from workloads import own_models, tiny_files, work

pytestmark = pytest.mark.slow

OWN = own_models.__file__
BPE = "tokenizer=bpe,vocabulary=400"
CASES = {
    "cifar100": ("images", "cifar100", "top5"),
    "jpeg": ("images", "imagenet", "top1"),
    "squad": ("reader", f"squad(seq_len=48,stride=16,{BPE})", "f1"),
    "words": ("language", "wikitext2(seq_len=6)", "perplexity_per_word"),
    "tokens": ("language", f"wikitext103(seq_len=6,{BPE})", "perplexity"),
    "wmt16": ("translator", f"wmt16(seq_len=24,{BPE})", "bleu"),
    "pretraining": ("pretrained", f"pretraining(seq_len=16,{BPE})", None),
}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    root = tmp_path_factory.mktemp("data")
    tiny_files.cifar(root)
    tiny_files.image_folder(root)
    tiny_files.squad(root)
    tiny_files.wikitext(root, "wikitext-2")
    tiny_files.wikitext(root, "wikitext-103", parquet=True)
    tiny_files.wmt16(root)
    (root / "pretraining").mkdir()
    (root / "pretraining/a.txt").write_text("".join(f"{tiny_files.sentence(n)}\n" for n in range(80)))
    made = Pool(2, {"SSFX_DATA": str(root)})
    yield made
    made.close()


@pytest.mark.parametrize("kind", CASES)
def test_a_data_set_trains_and_resumes(pair: Pool, tmp_path: Path, kind: str) -> None:
    model, dataset, metric = CASES[kind]
    changes = {
        "model": f"{OWN}:{model}",
        "dataset": dataset,
        "steps": 5,
        "checkpoint_every": 2,
        "batch_size": 2,
        "evaluate": metric is not None,
        "optimizer": "adam",
        "lr": 1e-3,
    }
    dense = pair.run(work.run, 2, str(tmp_path / "dense"), {**changes, "scheme": "ddp"}, None)
    assert all(math.isfinite(loss) for rank in dense for loss in rank["losses"].values())

    sparse = {**changes, "scheme": "ssfusion_oi", "compressor": "dgc", "density": 0.1, "memory": "residual"}
    whole = pair.run(work.run, 2, str(tmp_path / "whole"), sparse, None)
    assert pair.run(work.run, 2, str(tmp_path / "cut"), sparse, 3) == [None, None]
    resumed = pair.run(work.run, 2, str(tmp_path / "cut"), sparse, None)
    for rank in range(2):
        assert resumed[rank]["result"].first_step == 2
        assert resumed[rank]["losses"] == {step: whole[rank]["losses"][step] for step in range(2, 5)}
        assert resumed[rank]["result"].data_fingerprint == dense[rank]["result"].data_fingerprint
    assert whole[0]["losses"] != whole[1]["losses"]  # each rank has its own samples
    assert resumed[0]["result"].metrics == whole[0]["result"].metrics
    assert metric is None or math.isfinite(whole[0]["result"].metrics[metric])
