"""One package per alignment method, which imports `core` and no other method. `core.aligner` says what a
method must have.

They need torch and numpy alone, so that they run on a bare GPU machine. Vectors that cannot be aligned raise
BadInput before any work.
"""
