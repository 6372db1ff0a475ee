"""Profiles of one cell: torch's profiler over the phases of a step, and py-spy's flame graphs."""
