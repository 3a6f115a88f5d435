"""Encoders, texts to vectors: sources.py fetches them, loading.py opens them, encode.py runs them.

An encoder is a folder that `SentenceTransformer(folder)` opens. Of CLIP only the text tower is used. A row
with several models is a folder of such folders. Code that comes with a checkpoint is never run.
"""
