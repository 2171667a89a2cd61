"""Load and measure: `minillm bench serve` against any OpenAI-compatible server, `throughput` and `latency` offline."""
