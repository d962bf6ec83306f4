"""A project that has all four queues side by side."""
