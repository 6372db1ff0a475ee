"""What results hold, as classes: rows of the tables, ``suite.json`` and ``environment.json``. No torch, no Arrow."""
