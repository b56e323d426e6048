"""One schema document in, bytes out."""
