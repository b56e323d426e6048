"""What this device can do at best, measured: read bandwidth, matmuls, fixed cost of an op."""
