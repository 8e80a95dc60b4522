"""The words of `ssfx run` and of what measures, with conf/, become Cases or one line that says why not."""
