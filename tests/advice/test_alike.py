"""What tells an own model's step from that of a model of ssfx with the same tensors."""

from dataclasses import replace

from ssfx.advice.alike import alike
from ssfx.perf_model.roofline import counted_profile


def test_an_own_model_with_the_tensors_of_another_and_other_times_says_in_what_they_differ():
    found = replace(counted_profile("gpt2", "a100", 8, "adamw", "bf16"), model="mine.py:build#12345678")
    assert alike(found) == ""
    faster = replace(found, forward_s=found.forward_s / 2)
    said = alike(faster)
    assert said.startswith("model=gpt2 has these tensors, and a step alone takes 95.0 ms there, 76.1 here: forward ")
    assert "backward" not in said
    assert alike(replace(faster, model="gpt2")) == ""
    few = replace(faster, tensors=found.tensors[:9], ready_gap_s=found.ready_gap_s[:9])
    assert alike(few) == ""
