"""Tables of image and text encoders trained here: weighted point sets, and CLIP's single vectors."""

from pipelines.measures import shown
from pipelines.measures.image_text import MEASURES
from pipelines.pages.drawing import drawn
from pipelines.pages.tables import block, by_keys, lower_is_better, numbers, origin, section
from pipelines.study import EvaluateImageText, Head
from pipelines.study.params import Study

LEGEND = f"""These encoders were trained here from scratch. *Zero-shot* and *linear* are of the images with
exactly one label. *Linear width* is the number of features that the linear classifier sees; it depends on the
head. *Unexplained* is the share of the true PMI's variance that the similarity does not explain; *rank limit*
is the share that no inner product of this dimension explains (oracle). R@k is the share of images, or of
different captions, that have a right partner among the k nearest. Mean ± standard deviation over seeds.
{lower_is_better(shown(MEASURES))}"""


def image_text_table(study: Study) -> list[str]:
    """Return one block per corpus: every pair of encoders measured on it."""
    blocks = []
    for corpus, of_corpus in by_keys(study, "evaluate_image_text", "corpus").items():
        metrics = [m for _, m in of_corpus.values()]
        columns = [m for m in shown(MEASURES) if any(m.name in found for found in metrics)]
        rows = [
            [n, described(head_of(study, row)), f"{m['seeds']:.0f}", *numbers(columns, m, "std")]
            for n, (row, m) in of_corpus.items()
        ]
        first, *more = of_corpus
        header = ["row", "head", "seeds", *(c.title for c in columns)]
        one_label = metrics[0].get("classified")
        about = [f"{one_label:.0f} images have exactly one label.", ""] if one_label else []
        blocks += block(image_text_title(study, corpus, metrics[0]["test"]), header, rows, *about)
        blocks += drawn("evaluate_image_text", first, "zero-shot")
        for name in [first, *more[:1]]:
            blocks += drawn("evaluate_image_text", name, "pmi")
    return section("Images and captions", LEGEND, blocks)


def image_text_title(study: Study, corpus: str, images: float) -> str:
    return f"{corpus} ({origin(study, corpus)}; {images:.0f} images)"


def head_of(study: Study, row: EvaluateImageText) -> Head:
    return study.train_image_text[row.encoders].head


def described(head: Head) -> str:
    """Say what distinguishes a head from others: `all points, 16-d, gaussian 0.5, ...`."""
    if head.kind == "vector":
        return f"one vector, {head.dim}-d"
    kernel = f"{head.kernel} {head.scale:g}, linear {head.linear:.2f}, kernel {head.nonlinear:.2f}"
    log = ", log" if head.log else ""
    return f"{head.points or 'all'} points, {head.dim}-d, {kernel}, {head.weight}{log}"


TABLES = (image_text_table,)
