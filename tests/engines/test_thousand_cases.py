"""What a sweep of a thousand cases costs is counted, not timed: files, open files, memory (tests/config/test_compose.py
counts joins of configurations)."""

import tracemalloc
from pathlib import Path

import psutil
from engines.helpers import make_case

from ssfx.core.origin import Origin
from ssfx.core.rows import Row
from ssfx.core.slurm_site import Site
from ssfx.lab.config.cases import resolve_job
from ssfx.lab.engines.submission import MOST_TASKS, arrays, latest_tasks, submissions, submit_array
from ssfx.lab.engines.torchrun import MOST_CASES, Torchrun
from ssfx.lab.results.store import Store

WORDS = ["scheme=ddp", "cluster=16gpu", "cluster.nodes=2", "engine=slurm", "workload=digits_resnet"]


def test_composing_again_takes_no_more_memory():
    words = [*WORDS, "seed=range(0,40)"]
    resolve_job(words)
    tracemalloc.start()
    try:
        resolve_job(words)
        kept = tracemalloc.get_traced_memory()[0]
        for _ in range(2):
            resolve_job(words)
        assert tracemalloc.get_traced_memory()[0] - kept < 2**18
    finally:
        tracemalloc.stop()


def test_an_array_of_a_thousand_tasks_is_three_files(tmp_path, monkeypatch):
    store, site = Store(tmp_path), Site()
    cases = [make_case(cluster="16gpu(device=cpu,devices_per_node=2,nodes=1)", seed=seed) for seed in range(1001)]
    first, second = arrays(cases, store, site)
    assert (len(first.cases), len(second.cases)) == (MOST_TASKS, 1)
    assert "#SBATCH --array=0-999\n" in first.script
    assert list(tmp_path.iterdir()) == [], "nothing is written before it is submitted"
    monkeypatch.setattr("ssfx.lab.engines.submission.submit", lambda path: "7")
    submit_array(first, store, "train", None, site)
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == [
        "array.sh",
        "submitted.json",
        "sweep.json",
    ]
    assert latest_tasks(submissions(store))[cases[999].run_id].task == "7_999"


class Instant:
    """A launch whose ranks are done at once; it notes how many cases it got and how many files are open meanwhile."""

    def __init__(self, jobs, *_):
        self.jobs = jobs

    def __enter__(self):
        seen.append((len(self.jobs), psutil.Process().num_fds()))
        self.note = ""
        return self

    def __exit__(self, *_):
        pass

    def finished(self):
        return iter(self.jobs)

    def row(self, job, _):
        return Row(job.case.run_id, job.case, {}, Origin("measured"), {"notes": []})


seen: list[tuple[int, int]] = []


def test_many_cases_are_launched_by_parts_and_no_file_stays_open(tmp_path, monkeypatch):
    monkeypatch.setattr("ssfx.lab.results.store.write_json", lambda path, text: Path(path).write_text(text))  # no fsync
    engine, before = Torchrun(), psutil.Process().num_fds()
    engine._starts = Instant
    seen.clear()
    cases = [make_case(seed=seed) for seed in range(MOST_CASES + 30)]
    assert len(engine.run(cases, Store(tmp_path), progress=False)) == len(cases)
    assert [jobs for jobs, _ in seen] == [MOST_CASES, 30]
    assert max(files for _, files in seen) <= before + MOST_CASES + 5
    assert psutil.Process().num_fds() <= before + 1
