"""The rows of params.yaml, one class per table: what a stage may be told, with the defaults."""

# ruff: noqa: F401  (the surface of the package)
from pipelines.rows.attacks import Attributes, Audit, Invert, Inverter
from pipelines.rows.corpora import AnyCorpus, Chunk, Corpus, HubCorpus, LibraryCorpus, PathCorpus, SampleCorpus, VectorsCorpus
from pipelines.rows.encoders import Embed, Encoder, Finetune, Geometry, Network, Pooler, Similarity
from pipelines.rows.images import Contrast, Head, ImageTower, Recognise, TextTower
from pipelines.rows.published import Published
from pipelines.rows.row import Row
from pipelines.rows.translation import Align, Evaluate, aligner_module, settings_type
