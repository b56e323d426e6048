"""Kernels of our own for NVIDIA GPUs, where torch has none that reads what the engine stores.

Nothing here is imported on a CPU: triton comes with torch's CUDA builds. `available` says whether
it can run; the modules that hold kernels import it.
"""
