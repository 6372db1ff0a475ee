"""Runs suites: blocks onto child processes, rows into the store.

Import ``bnpbench.execution.run`` for ``run_suite``: nothing is imported here, because the children import
their half of this package and have no use for the other.
"""
