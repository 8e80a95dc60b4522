"""Commands of the harness, which `ssfx` finds through the entry points `ssfx.verbs`."""
