"""Clocks, tracers, recorders and sensors; nothing here computes a statistic."""
