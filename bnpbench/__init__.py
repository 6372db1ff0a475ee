"""What a normalization method costs and what it buys."""
