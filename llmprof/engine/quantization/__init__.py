"""Weights of 8 and 4 bits: how they are found, kept in memory and turned back into floats."""
