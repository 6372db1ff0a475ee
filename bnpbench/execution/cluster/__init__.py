"""Blocks on the nodes of a Ray cluster: ``connection`` to it, ``executor`` in the run's process, ``host`` on a node.

Ray is imported in ``connection`` alone, and only where a run asks for a cluster.
"""
