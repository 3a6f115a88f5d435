"""The rows of params.yaml: a class for each table, with types and defaults."""

# ruff: noqa: F401  (the surface of the package)
from pipelines.study.attacks import Attributes, Invert, Inverter
from pipelines.study.bulk import Bulk
from pipelines.study.corpora import (
    AnyCorpus,
    Chunk,
    Corpus,
    HubCorpus,
    LibraryCorpus,
    PathCorpus,
    SyntheticCorpus,
    TextCorpus,
    VectorsCorpus,
)
from pipelines.study.encoders import (
    Embed,
    Encoder,
    Finetune,
    Geometry,
    Network,
    Pooled,
    Pooler,
    Similarity,
    Transfer,
)
from pipelines.study.images import EvaluateImageText, Head, ImageTower, TextTower, TrainImageText
from pipelines.study.published import Published
from pipelines.study.row import Computed, Row
from pipelines.study.translation import Align, AlignJointly, Evaluate, aligner_module, settings_of
