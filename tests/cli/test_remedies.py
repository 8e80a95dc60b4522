"""What an error says to write instead works: it is written, and read again."""

import re

import pytest

from ssfx.cli import main

REFUSED = (
    "run --dry-run scheme=ssfusion_oi steps=5 warmup_steps=1",
    "run --dry-run scheme=ssfusion_oi steps=5 warmup_steps=8",
    "run --dry-run scheme=ddp steps=10 warmup_steps=10",
    "run --dry-run scheme=ddp world_size=64",
    "run --dry-run scheme=ddp schedule=step",
    "run --dry-run cluster=64gpu engine=torchrun",
    "simulate model=gpt2 cluster=box cluster.inter.gbps=25000 scheme=ddp",
    "simulate model=gpt2 cluster=box cluster.inter.efficiency=85 scheme=ddp",
    "simulate model=gpt2 cluster=box cluster.link=100gbe scheme=ddp",
    "simulate model=gpt2 cluster=box scheme=ddp density=0.1",
    "simulate model=gpt2 cluster=box scheme=[ddp,wfbp]",
    "simulate model=gpt2 cluster=box scheme=per_tensor density=10",
    "simulate model=gpt2 cluster=box scheme=ddp iteration_ms=0.25",
    "simulate model=gpt2 cluster=box scheme=ddp batch_size=1k",
    "simulate model=llama3_8b cluster=box scheme=ddp precision=half",
    "simulate model=gpt2 cluster=box scheme=dpp",
    "simulate model=gpt2 cluster=box scheme=ddp --batch-size=4",
    "simulate model=gpt2 cluster=box scheme=ddp nodes=4",
    "simulate model=gpt2 cluster=box scheme=ddp memory=residual",
    "simulate model=gpt2 cluster=64GPU scheme=ddp",
    "plan model=gpt2 cluster=box scheme=ddp,topk",
    "simulate model=gpt2 cluster=box cluster.calibration=recorded scheme=ddp",
)


def remedied(words: list[str], said: str) -> list[str]:
    """Return the words with what the error names in place of theirs, or without what it says to drop."""
    wrong, _, remedy = said.partition("; ") if "; " in said else (said, "", said)
    last = said.rpartition("; ")[2]
    key = re.search(r"(?:ssfx: |cluster=\w+ )?([a-z_.]+)(?==| must| is| has)", said)
    found = dict(re.findall(r"\b([a-z][a-z_.]*)=(\[[^]]*\]|[^\s,;:)?']+(?:,[a-z_]+)*)", last))
    if quoted := re.search(r"did you mean (?:one of )?'?([\w.]+)", said):
        unknown = re.search(r"unknown (?:option of )?([\w.]+) '([^']+)'", said)
        assert unknown
        old = unknown[2]
        return [
            word.replace(old, quoted[1]) if word.endswith(f"={old}") or word.startswith(old) else word for word in words
        ]
    if number := re.search(r"(?:write|is) ([0-9][0-9.e+-]*)", remedy):
        assert key
        return [f"{word.partition('=')[0]}={number[1]}" if word.startswith(f"{key[1]}=") else word for word in words]
    if kind := re.search(r"may be any of ([\w]+)", said):
        return [re.sub(r"(?<=link=)\w+", kind[1], word) for word in words]
    kept = [word for word in words if word.partition("=")[0].replace("--", "").replace("-", "_") not in found]
    if "drop it" in remedy and "=" not in remedy.partition("drop it")[0]:
        dropped = [*re.findall(r"([a-z_]+)=", wrong), *re.findall(r"([a-z_]+) has no effect", wrong)][-1]
        return [word for word in kept if not word.startswith(f"{dropped}=")]
    return [*kept, *(f"{name}={value}" for name, value in found.items())]


@pytest.mark.parametrize("command", REFUSED)
def test_what_an_error_says_to_write_is_accepted(command, capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("SSFX_RESULTS", str(tmp_path))
    verb, *words = command.split()
    assert main([verb, *words]) == 2
    for _ in range(3):
        words = remedied(words, capsys.readouterr().err)
        if (code := main([verb, *words])) == 0:
            break
    assert code == 0, (words, capsys.readouterr().err)
