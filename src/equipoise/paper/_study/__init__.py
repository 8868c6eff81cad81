"""The decisive study: a design registered before its runs, and verdicts with stated errors."""
