"""Metrics beside loss and accuracy, one file each; every class here that has a kind is one (``bnpbench.registry``)."""
