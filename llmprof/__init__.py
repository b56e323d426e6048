"""llmprof: where each millisecond of prefill and decode goes, against ceilings measured on this device."""

__version__ = "0.1.0"
