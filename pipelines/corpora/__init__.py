"""Corpora: texts or vectors from many sources, in one table.

core/      what all corpora share: columns, cleaning, chunks, the draw and the split
kinds/     one package per kind (passages, emails, ...); `synthetic.py` in it generates texts of the kind
sources/   one package per source: library, synthetic, hub, path, vectors
"""
