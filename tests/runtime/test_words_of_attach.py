"""What attach and its handle answer to what cannot be meant: the answers of the command line, as Python."""

import time

import pytest
import torch
from torch import nn

import ssfx
from ssfx.collectives import torch_comm
from ssfx.config.advice_question import resolve_setting
from ssfx.config.groups import check_choice
from ssfx.core.errors import ConfigError, RunError

PYTHON = {
    "dgc": 'write scheme="per_tensor", compressor="dgc"',
    "qsgd": 'write scheme="per_tensor", compressor="qsgd"',
    "fp16": 'write scheme="ddp_fp16"',
    "ssfusion": 'write scheme="ssfusion_oi"',
    "powersgd(rank=4)": 'write scheme="powersgd", compressor="powersgd(rank=4)"',
    "topk(density=0.01)": 'write scheme="topk", density=0.01',
    "best": 'write scheme="auto"',
    "int4": 'write scheme="ddp_quantized", compressor="qsgd(bits=4,bucket=32,norm=max)"',
    "1bit": 'write scheme="ddp_quantized", compressor="onebit"',
    "zero++": "fully_shard has wrapped",
    "topq": "did you mean 'topk'?",
}
COMMAND = {
    "dgc": "write scheme=per_tensor compressor=dgc",
    "best": "write scheme=auto",
    "zero++": "write sharding=hsdp",
    "int8": "write scheme=ddp_quantized",
}


def parts():
    model = nn.Linear(8, 8)
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


@pytest.mark.parametrize("name", PYTHON)
def test_a_scheme_that_is_none_is_answered_in_python(name):
    with pytest.raises(ConfigError) as found:
        ssfx.attach(*parts(), scheme=name)
    assert PYTHON[name] in str(found.value)


@pytest.mark.parametrize("name", COMMAND)
def test_the_command_line_has_the_same_answers(name):
    with pytest.raises(ConfigError) as found:
        check_choice("scheme", name)
    assert COMMAND[name] in str(found.value)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"trace": "x.json"}, "trace is True or False"),
        ({"scheme": ["ddp", "topk"]}, "attach takes one scheme"),
        ({"scheme": "topk", "ratio": 0.01}, "did you mean 'density'"),
        ({"scheme": "powersgd", "rank": 4}, r"powersgd\(rank=4\)"),
        ({"scheme": "topk", "group": None}, "did you mean process_group"),
        ({"scheme": "topk", "no_sync": True}, r"with sync.no_sync\(\)"),
        ({"scheme": "topk", "warmup": 5}, "did you mean 'dense_steps'"),
        ({"scheme": "topk", "momentum": 0.9}, "the optimizer's own"),
        ({"scheme": "topk", "device": "cuda"}, "move the model there before"),
        ({"scheme": "topk", "world_size": 4}, "init_process_group"),
        ({"scheme": "diloco", "H": 500}, "did you mean 'every'"),
        ({"scheme": "topk", "density": "1%"}, "write 0.01"),
        ({"scheme": "topk", "memory": "ef"}, "did you mean 'residual'"),
        ({"exempt": nn.Linear(2, 2)}, "exempt is a list of"),
        ({"scheme": "powersgd", "compressor": "powersgd(rank=100000)"}, r"rank must be in \[1, 4096\]"),
    ],
)
def test_what_attach_cannot_take(given, said):
    with pytest.raises(ConfigError, match=said):
        ssfx.attach(*parts(), **given)


def test_a_model_that_is_spread_over_devices_by_torch_is_refused():
    model, optimizer = parts()
    with pytest.raises(ConfigError, match="as torchrun starts them"):
        ssfx.attach(nn.DataParallel(model), optimizer)


def test_names_of_other_libraries_are_answered():
    of_package = {"wrap": "ssfx.attach", "DDP": "ssfx.attach", "advise": "advise_on", "detach": "sync.detach"}
    for name, said in (of_package | {"simulate": "a command", "TopK": 'scheme="topk"'}).items():
        with pytest.raises(AttributeError, match=said):
            getattr(ssfx, name)
    sync = ssfx.attach(*parts())
    for name, said in {"statistics": "sync.stats", "backward": "the script does", "detatch": "sync.detach"}.items():
        with pytest.raises(AttributeError, match=said):
            getattr(sync, name)
    with pytest.raises(ConfigError, match="got Linear; ssfx profile"):
        ssfx.advise_on(parts()[0], "64gpu")


def test_a_trace_that_was_not_kept_cannot_be_saved(tmp_path):
    sync = ssfx.attach(*parts())
    with pytest.raises(RunError, match="trace=True"):
        sync.tracer.save(tmp_path / "trace.json")
    assert not list(tmp_path.iterdir())


def test_virtual_ranks_do_not_share_a_model_by_accident():
    one = parts()
    with pytest.raises(ConfigError, match="attach to one model; build one of each rank"):
        ssfx.virtual_ranks(lambda rank, comm: ssfx.attach(*one, comm=comm), 2)


def test_machines_are_of_a_cluster():
    with pytest.raises(ConfigError, match=r"write cluster=box cluster\.nodes=4$"):
        resolve_setting(["model=gpt2", "cluster.nodes=4", "cluster.device=a100"])


def test_the_log_says_every_hundred_steps_what_waits_and_can_be_silent(caplog):
    def train(rank, comm):
        model, optimizer = parts()
        ssfx.attach(model, optimizer, comm=comm)
        for _ in range(250):
            optimizer.zero_grad()
            model(torch.ones(1, 8)).sum().backward()
            optimizer.step()

    with caplog.at_level("WARNING", "ssfx"):
        ssfx.virtual_ranks(train, 2)
    assert "you wait" not in caplog.text
    with caplog.at_level("INFO", "ssfx"):
        ssfx.virtual_ranks(train, 2)
    lines = [one.getMessage() for one in caplog.records if "you wait" in one.getMessage()]
    assert len(lines) == 1
    assert lines[0].startswith("step 200: ")


def test_a_rank_that_waits_for_others_to_attach_says_so(monkeypatch, caplog):
    monkeypatch.setattr(torch_comm, "LONG_S", 0.01)
    with caplog.at_level("WARNING", "ssfx"), torch_comm._said_while_waiting(3):
        until = time.monotonic() + 30
        while not caplog.records and time.monotonic() < until:
            time.sleep(0.01)
    assert caplog.messages == [
        "rank 3 has waited 0.01 s for all ranks to call ssfx.attach; a script calls it on every rank"
    ]
