"""Clock, operations, machine and environment: what a measurement needs."""
