"""The report as one HTML file that needs nothing else: no network, no other file. No torch."""

from __future__ import annotations

from bnpbench.report.page.page import MOST_BYTES, render_page

__all__ = ["MOST_BYTES", "render_page"]
