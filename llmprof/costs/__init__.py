"""FLOPs and bytes from shapes alone; the one copy of every formula."""
