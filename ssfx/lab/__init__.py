"""The harness: it trains, measures and records what the library plans and exchanges. The library never imports it."""
