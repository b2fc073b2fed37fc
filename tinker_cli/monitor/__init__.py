"""Terminal views of runs: charts, the live dashboard, plain lines. Reads `runs`, writes nothing."""
