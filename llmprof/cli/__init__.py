"""The command line: parse, call, write, exit; one file per command; no arithmetic."""
