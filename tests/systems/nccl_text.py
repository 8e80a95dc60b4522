"""What nccl-tests would print of a table."""

HEAD = (
    "#                                                              out-of-place                       in-place\n"
    "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw "
    "#wrong\n"
    "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)\n"
)


def bandwidths(table, size, us):
    alone = 1e-3 * size / us
    share = {"all_reduce": 2 * (table.ranks - 1) / table.ranks, "sendrecv": 1.0}
    return alone, share.get(table.collective, (table.ranks - 1) / table.ranks) * alone


def as_text(table, *, device="NVIDIA A100-SXM4-40GB", program=True, ranks=True, old=False):
    """The screen of a run: `program` and `ranks` are whether it names the collective and lists the devices."""
    lines = [f"# Collective test starting: {table.collective}_perf"] if program else []
    lines.append("# nThread 1 nGpus 1 minBytes 8 maxBytes 8589934592 step: 2(factor) warmup iters: 5 iters: 20")
    lines.append("# Using devices")
    for rank in range(table.ranks if ranks else 0):
        node, local = divmod(rank, table.ranks_per_node)
        group = "" if old else "Group  0 "
        lines.append(
            f"#  Rank {rank:2} {group}Pid {1000 + rank} on   node{node} device  {local} [0x{local:02x}] {device}"
        )
    lines.append("NCCL version 2.19.3+cuda12.3")
    lines.append(HEAD.rstrip())
    redop = "sum" if table.collective in ("all_reduce", "reduce_scatter", "sendrecv") else "none"
    for size, us in zip(table.nbytes, table.us, strict=True):
        alone, bus = bandwidths(table, size, us)
        place = f"{us:8.6g} {alone:7.2f} {bus:7.2f} {'5e-07' if old else '0':>6}"
        root = "" if old else f"{-1:7}"
        lines.append(f"{size:12} {size // 4:13} {'float':>9} {redop:>7}{root} {place} {place}")
    lines += ["# Out of bounds values : 0 OK", "# Avg bus bandwidth    : 1.5", "#"]
    return "\n".join(lines) + "\n"
