"""One package per alignment method, which imports `core` and no other method. `core.aligner` says what a
method must have.

They need only torch, numpy and tqdm, so that they run on a bare GPU machine. `transport` also needs POT and
scipy, and `rosetta` scikit-learn and scipy. Saving a translator needs safetensors. Vectors that cannot be
aligned raise BadInput before any work.
"""
