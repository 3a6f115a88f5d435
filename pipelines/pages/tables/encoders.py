"""Tables of encoders: on pairs with scores, trained here, and compared with each other."""

from pipelines.measures import geometry, labels, shown, similarity
from pipelines.pages.drawing import drawn
from pipelines.pages.tables import (
    block,
    by_keys,
    escaped,
    lower_is_better,
    measured,
    numbers,
    origin,
    section,
    table,
)
from pipelines.runtime import store
from pipelines.study import Finetune, Geometry
from pipelines.study.params import Study

WORDS = 12  # at either end of the table of words
QUERIES = 3  # sentences whose nearest others are shown
SIMILARITY = shown([*similarity.MEASURES, *geometry.ANISOTROPY])
TRAINED = [m for m in SIMILARITY if m.name in ("spearman", "alignment", "uniformity")]
SIMILARITY_LEGEND = f"""Cosines of raw vectors against human scores, or against the generator's: Spearman and
Pearson x 100, all pairs together, no regressor. *Alignment* is that of pairs with a score above 4.
{lower_is_better(SIMILARITY)} *Variance* is that of the cosines of a token's vectors in neighbouring layers,
which is the weight of a word in SBERT-WK."""
TRANSFER_LEGEND = """Accuracy x 100 of a logistic regression on frozen vectors, with its 95 % interval
(Wilson) over test sentences. Tasks without a test split have ten folds."""
TRAINED_LEGEND = """SimCSE. The dev split of the pairs named here also chose the step, so these numbers are
optimistic. See Similarity for test pairs."""
GEOMETRY_LEGEND = """*Chance* is the mean over random pairings of the texts. *Calibrated* is above 0 only if p
is at most .05. *Top-1* is the best translation between the two, in either direction. *Labels matched*: share
of labels matched by cosines between label centroids. The two sides have different texts. *p* says whether the
true match is better than random ones."""


def similarity_table(study: Study) -> list[str]:
    """Return one block per set of pairs: every encoder measured on it, best first."""
    blocks = []
    for (corpus, split), every in by_keys(study, "similarity", "corpus", "split").items():
        names, rows = sorted(every, key=lambda n: -every[n][1]["spearman"]), []
        for row, metrics in (every[n] for n in names):
            encoder = study.encoders[row.encoder]
            own = f"layers {' and '.join(map(str, encoder.layers))}" if encoder.layers else "its own"
            pooling = row.pooling or encoder.pooling or own
            rows.append([row.encoder, pooling, *numbers(SIMILARITY, metrics)])
            others = metrics.get("poolings", {}).items()
            rows += [[row.encoder, other, *numbers(SIMILARITY, found)] for other, found in others]
        pairs = f"{every[names[0]][1]['pairs']} pairs" + (f", {split}" if split else "")
        title = f"{corpus} ({origin(study, corpus)}; {pairs})"
        blocks += block(title, ["encoder", "pooling", *(m.title for m in SIMILARITY)], rows)
        blocks += [
            line for kind in ("plane", "layers") for n in names for line in drawn("similarity", n, kind)
        ]
        if not study.private(corpus):
            blocks += words_table(names) + nearest_table(names)
    return section("Similarity", SIMILARITY_LEGEND, blocks)


def transfer_table(study: Study) -> list[str]:
    """Return one block per set of tasks: every encoder and pooling, best mean over tasks first."""
    blocks = []
    for corpus, every in by_keys(study, "transfer", "corpus").items():
        found = []
        for row, metrics in every.values():
            found += [(row.encoder, way, of) for way, of in metrics.items() if way != "tasks"]
        found.sort(key=lambda of: -of[2]["average"]["accuracy"])
        tasks = list(found[0][2])
        rows = [[encoder, way, *(with_interval(of[task]) for task in tasks)] for encoder, way, of in found]
        header = ["encoder", "pooling", *map(escaped, tasks)]
        blocks += block(f"{corpus} ({origin(study, corpus)})", header, rows)
    return section("Transfer", TRANSFER_LEGEND, blocks)


def with_interval(of: dict[str, float]) -> str:
    return f"{of['accuracy']:.1f} [{of['low']:.1f}, {of['high']:.1f}]"


def words_table(names: list[str]) -> list[str]:
    """Return the words that change most and least from layer to layer, for rows that compare layers."""
    rows = []
    for name in names:
        words = store.read_csv(store.tables_path("similarity", name) / "words.csv", "word")["word"]
        ends = (words.head(WORDS), words.tail(WORDS).reverse())
        rows += [[name, *(escaped(" ".join(end)) for end in ends)]] if len(words) else []
    header = ["row", "words of the largest variance", "of the smallest"]
    return ["", *table(header, rows)] if rows else []


def nearest_table(names: list[str]) -> list[str]:
    """Return the nearest sentences of a few others, query by query: the paper's retrieval examples."""
    files = [store.tables_path("similarity", name) / "nearest.csv" for name in names]
    found = [store.read_csv(file, "query", "sentence") for file in files]
    rows = []
    for query in found[0]["query"].unique(maintain_order=True)[:QUERIES]:
        for name, near in zip(names, found, strict=True):
            answers = near.filter(query=query)["sentence"]
            rows.append([escaped(query), name, escaped("; ".join(answers))])
    return ["", *table(["sentence", "row", "nearest, best first"], rows)]


def start(row: Finetune) -> str:
    """Name what a training started from: `untrained`, or `before` for the end of another training."""
    return "untrained" if row.from_scratch else "before"


def trained_table(study: Study) -> list[str]:
    """List every encoder trained here, before training and at the chosen step."""
    rows, images = [], []
    for name, (row, metrics) in measured(study, "finetune").items():
        texts = f"{row.corpus} ({origin(study, row.corpus)})"
        steps = {"before": start(row), "dev": f"step {metrics['dev']['step']}"}
        for when, step in steps.items():
            rows.append([name, texts, row.dev, step, *numbers(TRAINED, metrics[when])])
        images += drawn("finetune", name, "curve", "steps")
    header = ["encoder", "texts", "chosen on", "", *(m.title for m in TRAINED)]
    return section("Trained here", TRAINED_LEGEND, ["", *table(header, rows), *images] if rows else [])


def geometry_table(study: Study) -> list[str]:
    """Return one block per row: every two encoders, beside the best translation between them."""
    blocks = []
    for name, (row, metrics) in measured(study, "geometry").items():
        pairs = {pair: m for pair, m in metrics.items() if isinstance(m, dict)}
        labelled = all("labels_matched" in m for m in pairs.values())
        measures = shown(geometry.MEASURES + labels.MEASURES * labelled)
        rows = []
        for pair, m in sorted(pairs.items(), key=lambda pair: -pair[1]["overlap"]):
            rows.append(
                [pair.replace(":", " and "), *numbers(measures, m), *translated(study, row.corpus, pair)]
            )
        chance = {"overlap": f" (chance {metrics['chance']:.4f})"}
        header = [m.title + chance.get(m.name, "") for m in measures]
        header = ["encoders", *header, "top-1, unpaired", "top-1, oracle"]
        blocks += block(geometry_title(study, name, row, metrics["texts"]), header, rows)
    return section("Geometry", GEOMETRY_LEGEND, blocks)


def geometry_title(study: Study, name: str, row: Geometry, texts: int) -> str:
    corpus = row.corpus if name == row.corpus else f"{name}, of {row.corpus}"
    return f"{corpus} ({origin(study, row.corpus)}; {texts} texts)"


def translated(study: Study, corpus: str, pair: str) -> list[str]:
    """Return the best top-1 on a corpus between two encoders `a:b`: unpaired, oracle."""
    best, spaces, fits = {"unpaired": "", "oracle": ""}, study.spaces(), study.translators()
    for row, metrics in measured(study, "evaluate").values():
        source, target = spaces[row.source], spaces[row.target]
        if {source.encoder, target.encoder} == set(pair.split(":")) and source.corpus == corpus:
            supervision = fits[row.translator].supervision
            best[supervision] = max(best.get(supervision, ""), f"{metrics['top1']:.3f}")
    return [best["unpaired"], best["oracle"]]


TABLES = (similarity_table, transfer_table, trained_table, geometry_table)
