"""The datasheet table."""
