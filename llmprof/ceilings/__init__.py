"""What this device can do at best, measured."""
