"""The words after a command, with conf/, become a question, a plan, or one line that says why not."""
