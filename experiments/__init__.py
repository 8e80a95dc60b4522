"""The papers: a folder each with figures and claims, and what they share in `common`. ssfx does without it."""
