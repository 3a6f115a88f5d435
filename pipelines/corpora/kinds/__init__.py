"""Kinds of corpora, one package each: `SOURCES` it can come from, and `rows(p, source)` for hub and path.

`source.table(p)` gives the source's own columns. A kind without `rows` has the usual ones of `core.texts`. A
kind with source synthetic has a module `synthetic` with `rows(p)`.
"""
