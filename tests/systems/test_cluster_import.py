"""Files that people have of a cluster become a cluster file, or a line that says why not."""

import random

import pytest
import yaml
from systems.nccl_text import as_text

from ssfx.core.component_file import component_file
from ssfx.core.errors import ConfigError
from ssfx.core.paths import data_dir
from ssfx.lab.calibration.cluster_import import imported
from ssfx.perf_model.cluster_file import cluster_of
from ssfx.perf_model.exchange_tables import ExchangeTable, tables_of

SHIPPED = {name: tables_of(component_file("cluster", name)["exchanges"]) for name in ("snellius_h100", "polaris")}


def table(collective="all_reduce", ranks=8, per_node=4, top=26):
    sizes = tuple(2**power for power in range(7, top + 1))
    return ExchangeTable(collective, ranks, per_node, sizes, tuple(float(f"{30 + n / 2e4:.4g}") for n in sizes))


def files(folder, **texts):
    paths = []
    for name, text in texts.items():
        path = folder / name.replace("__", ".")
        path.write_text(text)
        paths.append(path)
    return paths


def read(folder, **texts):
    return imported(files(folder, **texts))


def cluster(found, folder):
    path = folder / "made.yaml"
    path.write_text(found.text)
    return cluster_of(component_file("cluster", str(path)), None, "auto")


@pytest.mark.parametrize("one", [*SHIPPED["snellius_h100"], *SHIPPED["polaris"][:6]], ids=lambda one: one.text)
def test_what_is_printed_of_a_table_is_that_table(one, tmp_path):
    (found,) = read(tmp_path, log__txt=as_text(one)).tables
    assert (found.collective, found.ranks, found.ranks_per_node) == (one.collective, one.ranks, one.ranks_per_node)
    assert (found.nbytes, found.us) == (one.nbytes, one.us)
    assert found.library == "NCCL 2.19.3"
    assert found.source.startswith("log.txt (sha256 ")


def test_old_text_says_the_same(tmp_path):
    one = table()
    (same,) = read(tmp_path, all_reduce__log=as_text(one, program=False, old=True)).tables
    assert (same.collective, same.ranks, same.ranks_per_node) == ("all_reduce", 8, 4)
    assert (same.nbytes, same.us) == (one.nbytes, one.us)


def test_lines_may_have_the_prefix_of_mpirun_and_colours(tmp_path):
    text = "".join(f"[1,0]<stdout>:{line}\n" for line in as_text(table()).splitlines())
    assert read(tmp_path, a__log=text).tables[0].us == table().us
    assert read(tmp_path, b__log=as_text(table()).replace("# ", "\x1b[0m# ")).tables[0].us == table().us


def test_several_collectives_and_rank_counts_are_one_cluster(tmp_path):
    tables = [
        table(),
        table("all_gather"),
        table("alltoall"),
        table("reduce_scatter"),
        table("sendrecv"),
        table(ranks=4, per_node=4),
        table(ranks=16),
    ]
    found = read(tmp_path, **{f"f{i}__log": as_text(one) for i, one in enumerate(tables)})
    made = cluster(found, tmp_path)
    assert (made.nodes, made.devices_per_node, made.device) == (4, 4, "a100_40gb")
    assert {(one.collective, one.ranks) for one in made.tables} == {(one.collective, one.ranks) for one in tables}
    node = yaml.safe_load(found.text)
    assert node["small_allreduce_us"] == table().us[0]
    assert "link" not in node["intra"]  # measured on one node
    assert "f0.log (sha256 " in made.source
    together = read(tmp_path, all__log="".join(as_text(one) for one in tables))
    assert {(one.collective, one.ranks, one.us) for one in together.tables} == {
        (one.collective, one.ranks, one.us) for one in tables
    }


def test_several_runs_of_a_test_are_their_medians(tmp_path):
    runs = [table(), ExchangeTable("all_reduce", 8, 4, table().nbytes, tuple(1.2 * us for us in table().us)), table()]
    (found,) = read(tmp_path, **{f"r{i}__log": as_text(one) for i, one in enumerate(runs)}).tables
    assert found.us == table().us
    assert found.source.count("sha256") == 3


def test_what_a_log_does_not_say_is_asked_for(tmp_path):
    bare = as_text(table(), ranks=False)
    with pytest.raises(
        ConfigError, match=r"a\.log \(sha256 .*does not say on how many machines its 8 ranks ran; add --nodes"
    ):
        read(tmp_path, a__log=bare)
    (path,) = files(tmp_path, a__log=bare)
    with pytest.raises(ConfigError, match="no file names the devices; name the nearest by --device"):
        imported([path], nodes=2)
    assert imported([path], nodes=2, device="v100").tables[0].ranks_per_node == 4


def test_a_recorded_network_and_a_measured_cluster_are_read(tmp_path):
    path = next(iter(sorted((data_dir() / "systems").glob("emulated_4x1gbit*4*.json"))))
    made = cluster(imported([path]), tmp_path)
    assert (made.nodes, made.devices_per_node, made.device) == (4, 1, "cpu")
    assert {"all_reduce", "all_gather", "all_to_all", "send"} <= set(made.tabled.measured)
    first = cluster(read(tmp_path, a__log=as_text(table())), tmp_path)
    more = imported([tmp_path / "made.yaml", *files(tmp_path, g__log=as_text(table("all_gather")))])
    assert {one.collective for one in more.tables} == {"all_reduce", "all_gather"}
    assert first.tables[0] in more.tables


def test_what_is_odd_is_said(tmp_path):
    text = as_text(table())
    broken = text.replace(f"{table().us[-1]:8.6g}", f"{2 * table().us[-1]:8.6g}")
    notes = " ".join(read(tmp_path, a__log=broken).notes)
    assert (
        f"1 rows of a.log whose bandwidth is not their bytes by their time are left out: {table().nbytes[-1]}" in notes
    )
    falling = ExchangeTable("all_reduce", 8, 4, (2**20, 2**21, 2**22), (1463.0, 395.0, 700.0))
    assert "all_reduce on 8 ranks is not monotone: 2 MiB takes less" in " ".join(
        read(tmp_path, b__log=as_text(falling)).notes
    )
    assert "inside a node nvlink is assumed" in " ".join(read(tmp_path, c__log=text).notes)


REFUSED = [
    ("", "is of no kind that is read"),
    ("hello", "is of no kind that is read"),
    ("# nThread 1 all_reduce_perf\n", "has no row of all_reduce"),
    (as_text(table(), program=False, ranks=False).replace("sum", "none"), "f.txt: |does not say which collective"),
    (as_text(table()).replace("Rank  3", "Rank  0"), "build nccl-tests with MPI=1"),
    (as_text(table()).replace("on   node1 device  3", "on   node0 device  3"), "nodes have 3 to 5 ranks"),
    (as_text(table()).replace("all_reduce_perf", "all_gather_perf"), "is of another collective or cut together"),
    (as_text(table(ranks=1000, per_node=4), ranks=False), "how many ranks were tested is not in it"),
    (as_text(table(), device="AMD Instinct MI210"), "no data sheet is known of AMD Instinct MI210"),
]


@pytest.mark.parametrize(("text", "why"), REFUSED)
def test_what_cannot_be_read_is_one_line(text, why, tmp_path):
    with pytest.raises(ConfigError, match=why) as caught:
        read(tmp_path, f__txt=text)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_one_line(tmp_path):
    with pytest.raises(ConfigError, match=r"none\.log cannot be read: No such file"):
        imported([tmp_path / "none.log"])


# ---- mutations ------------------------------------------------------------------------------------------------------


def mutated(text: str, chance: random.Random) -> str:
    """Return `text` with one kind of damage that files suffer."""
    lines = text.splitlines(keepends=True)
    at, other = chance.randrange(len(lines)), chance.randrange(len(lines))
    spot = chance.randrange(len(text))
    digits = [i for i, char in enumerate(text) if char.isdigit()]
    kind = chance.randrange(12)
    if kind == 0:
        return text[:spot]
    if kind == 1:
        return text[spot:]
    if kind == 2:
        del lines[at]
        return "".join(lines)
    if kind == 3:
        return "".join([*lines[:at], lines[other], *lines[at:]])
    if kind == 4:
        lines[at], lines[other] = lines[other], lines[at]
        return "".join(lines)
    if kind in (5, 6):
        digit = chance.choice(digits or [spot])
        return text[:digit] + chance.choice("0123456789") + text[digit + 1 :]
    if kind == 7:
        return text[:spot] + chance.choice("\x00\ufffd-.,e{}[]\"'\n\t ") + text[spot + 1 :]
    if kind == 8:
        words = text.split(" ")
        words[chance.randrange(len(words))] = chance.choice(["nan", "inf", "-1", "1e999", "N/A", "9" * 40, ""])
        return " ".join(words)
    if kind == 9:
        return text + chance.choice(["\n", text, text[spot:], "Segmentation fault (core dumped)\n", "\x00" * 100])
    if kind == 10:
        return text.replace(
            chance.choice(["float", "sum", "Rank", "busbw", "us", ","]), chance.choice(["", "x", "half"])
        )
    return text[:spot] + text[spot + chance.randrange(1, 200) :]


def tried(*paths):
    """Return what the files come to, or the one line that refuses them."""
    try:
        return imported(paths, nodes=2, device="a100")
    except ConfigError as error:
        text = str(error)
    assert "\n" not in text
    return text


def test_three_hundred_mutated_logs_are_a_table_a_warning_or_a_line(tmp_path):
    """A time that changed is seen from the bandwidths beside it, so no large message may have a wrong time silently."""
    chance = random.Random(36)
    whole = {collective: table(collective) for collective in ("all_reduce", "all_gather", "reduce_scatter")}
    tables = lines = 0
    for number in range(300):
        collective = chance.choice(list(whole))
        text = mutated(as_text(whole[collective]), chance)
        path = tmp_path / f"{number}.{collective}.txt"
        path.write_text(text, encoding="utf-8", errors="replace")
        found = tried(path)
        if isinstance(found, str):
            lines += 1
            continue
        tables += 1
        right = dict(zip(whole[collective].nbytes, whole[collective].us, strict=True))
        for one in found.tables:
            assert (one.collective, one.ranks) == (collective, 8), path
            for size, us in zip(one.nbytes, one.us, strict=True):
                if size >= 2**17:
                    assert size in right, path
                    assert us == pytest.approx(right[size], rel=0.07), (path, size)
    assert tables > 100
    assert lines > 10
