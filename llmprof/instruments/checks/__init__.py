"""The checks behind `llmprof doctor`, one file per thing that is checked."""
