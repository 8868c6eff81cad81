"""The paper's experiments: its grids, its published tables, and both beside each other."""
