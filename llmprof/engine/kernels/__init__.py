"""CPU kernels of our own, where torch's stay far below the memory ceiling."""
