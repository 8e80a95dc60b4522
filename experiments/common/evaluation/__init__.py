"""What the artifacts of four papers are computed from: exact sizes, small examples, set-ups, and simulated rows."""
