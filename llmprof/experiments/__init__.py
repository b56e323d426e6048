"""Several measurements as one."""
