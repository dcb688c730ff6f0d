"""What a place gives to those who keep conversations there: tried, not assumed."""
