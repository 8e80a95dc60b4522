"""What every rank of a run does: train one case after the other, tell the launcher how it goes, stop when asked."""
