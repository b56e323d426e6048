"""Memory and capacity, before anything runs."""
