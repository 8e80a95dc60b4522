"""`ssfx doctor`: what is installed and here, and what therefore runs."""

from __future__ import annotations

import json

import click

from ssfx.cli.terminal import print_table, say


@click.command(short_help="Show what is here, and what would run.")
@click.option("--json", "as_json", is_flag=True, help="Print all of it as one JSON object.")
@click.option("--gpu", is_flag=True, help="Check this machine's GPUs and measure them, in five minutes at most.")
def doctor(as_json: bool, gpu: bool) -> None:
    """Show versions, hardware, backends and data sets, and what would run here.

    With --gpu the GPUs here are checked and measured: kernels, streams, schemes against torch DDP, exchanges, times of
    compressors and models. One file has all of it; simulations of cluster=local then use it.
    """
    if gpu:
        from ssfx.lab.cli.doctor_gpu import check_gpus_here

        check_gpus_here(as_json)
        return
    from ssfx.lab.cli.examine import examine

    found = examine()
    broken = [check.what for check in found.checks if check.required and not check.runs]
    if as_json:
        checks = [
            {"what": one.what, "runs": one.runs, "why": one.why, "required": one.required} for one in found.checks
        ]
        click.echo(json.dumps({"facts": dict(found.facts), "checks": checks, "ready": not broken}))
        if broken:
            raise click.exceptions.Exit(1)
        return
    print_table(("what", "here"), found.facts)
    click.echo()
    for check in found.checks:
        colour = "green" if check.runs else "red" if check.required else "yellow"
        mark = "runs" if check.runs else "does not run"
        say(f"{check.what}: {mark}{f', {check.why}' if check.why else ''}", "    ", "", fg=colour)
    click.echo()
    if broken:
        say(f"ssfx run cannot work here before this does: {', '.join(broken)}", "    ", "", fg="red", bold=True)
        raise click.exceptions.Exit(1)
    click.secho("all that ssfx run needs is here; start with: ssfx run", bold=True)
