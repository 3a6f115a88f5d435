"""The science: verbs are stages (`python -m pipelines.<verb> <row>`), packages are nouns. dvc.yaml is the graph."""

import os

# Before torch loads: threads that wait by spinning take the core that the thread they wait for needs. On a machine with other
# work on it that halves the speed of embedding.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
