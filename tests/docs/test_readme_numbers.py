"""What README says of a cluster of one's own is what its command answers."""

import re
import shlex
from pathlib import Path

from ssfx.advice import advise
from ssfx.advice.answer import Answer, answer_of
from ssfx.config.advice_question import resolve_setting

README = (Path(__file__).parents[2] / "README.md").read_text()
NAMES = ("ddp", "ddp_fp16", "hierarchical", "hierarchical_fp16", "auto")


def asked(link: str) -> Answer:
    """Return the answer to the command in README, over another kind of link."""
    command = re.search(r"^    ssfx advise (model=gpt2_large (?:.*\\\n)?.*)$", README, re.MULTILINE)[1]
    words = shlex.split(command.replace("\\\n", " "), comments=True)
    others = [word for word in words if not word.startswith("cluster.link=")]
    return answer_of(advise(resolve_setting([*others, f"cluster.link={link}"]), NAMES))


def test_what_sixteen_bits_gain_by_link_is_what_the_command_answers():
    gains = dict(reversed(one) for one in re.findall(r"([\d.]+)x at (\d+)", README.replace("\n", " ")))
    assert gains.keys() >= {"25", "100"}
    for link, gbps in (("eth_25_tcp", "25"), ("roce_100", "100")):
        answer = asked(link)
        assert answer.answer == "yes"
        assert f"{answer.best.vs_dense:.1f}" == gains[gbps]
    assert asked("1gbe").alone_is_faster
