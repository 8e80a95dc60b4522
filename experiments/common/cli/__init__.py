"""Commands of the papers, which `ssfx` finds through the entry points `ssfx.verbs`."""
