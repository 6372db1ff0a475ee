"""Numbers with their intervals, for reports and for the rule that ends a run. No pandas, no torch."""
