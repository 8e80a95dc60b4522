"""What a plan sends and how long it takes: message sizes and the reference timeline F(plan). No torch."""
