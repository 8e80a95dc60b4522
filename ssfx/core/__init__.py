"""What everything rests on: errors, component registries and specs, paths, files, the machine, the Case. No torch."""
