"""One file or package per alignment method; `core` is what they share. Torch and numpy only,
so that they run on a bare GPU machine.

The protocol, the same for all: a module has `SUPERVISION` ("unpaired", "naive" or "oracle"), a frozen dataclass `Settings`,
and one of

    fit(source, target, settings, seed, pairs=None, log=None) -> Translator          # unpaired
    fit_oracle(paired_source, paired_target, settings, seed) -> Translator           # sees true pairs, and is named so

source: (n, d), target: (m, e) float32. `pairs`: (k, 2) indices of known partners, or None. `log(metrics, step)`: live curves.
`fit` may also take `folder`, where it keeps checkpoints. Same arguments, same translator; BadInput for vectors that cannot be
aligned, before any work. `ALONE = True`: it draws from torch's own random state, so one fit at a time in a process.
"""
