"""The reference engine, observed through one seam: Probe."""
