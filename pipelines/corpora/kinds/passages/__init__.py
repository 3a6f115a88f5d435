"""passages: prose to train translators on. The vec2vec paper uses Natural Questions' Wikipedia passages.

Of the hub: jxm/nq_corpus_dpr, or any set of texts.
"""

SOURCES = ("library", "synthetic", "hub", "path")
CHUNKED = True  # rows may have `chunk` and `document`
