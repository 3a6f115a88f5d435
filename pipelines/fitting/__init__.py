"""What `align` and `align_jointly` share: which fit sees which texts, and fits, restarts and verdicts of a
row.
"""
