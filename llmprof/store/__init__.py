"""Settings files, run files and the user cache on disk."""
