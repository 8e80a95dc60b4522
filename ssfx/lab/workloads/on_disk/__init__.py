"""Data sets that are files of the user's: where they lie, how samples are made of them, and how they become batches."""
