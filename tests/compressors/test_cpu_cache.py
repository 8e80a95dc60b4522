"""Compiled kernels of the CPU: no machine code of an older version of what a kernel inlines can be used."""

from __future__ import annotations

from pathlib import Path

import pytest

from ssfx.compressors.kernels.cpu import jit, select


def test_a_changed_file_of_an_inlined_kernel_is_another_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit, "cache_dir", jit.cache_dir.__wrapped__)
    room = tmp_path / "kernels" / "cpu"
    room.mkdir(parents=True)
    inlined, kernel = room / "inlined.py", room / "kernel.py"
    inlined.write_text("factor = 1\n")
    kernel.write_text("from ssfx.compressors.kernels.cpu.inlined import factor\n")
    before = jit.cache_dir(kernel)
    inlined.write_text("factor = 2\n")
    assert jit.cache_dir(kernel) != before


def test_imports_of_kernels_are_seen_by_their_real_names() -> None:
    assert {path.stem for path in jit._with_imports(Path(select.__file__))} > {"select", "jit"}
