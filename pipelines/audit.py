"""audit: vectors with no text and no encoder name, attacked with every encoder of the study ->
results/audit/<dump>.html and .md.

    python -m pipelines.audit DUMP [TEXTS]

DUMP: parquet, arrow, npy, npz, jsonl, a FAISS flat index, or a Chroma folder. TEXTS: a file or folder of the auditor's
own texts, of the same kind as those behind the dump where possible; without it, the corpus of the study's row `audit:
default`. For auditing one's own data.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pipelines import audit_page, params, querying, store, track
from pipelines.aligners.translator import Translator
from pipelines.corpora import dumps
from pipelines.corpora.path import located
from pipelines.errors import BadInput
from pipelines.inverters import Space, decoder, hub, retrieval, search
from pipelines.measures import attributes
from pipelines.measures.defences import Defence, defend, recall_kept

TOPICS = (
    "arts & culture", "business", "celebrities & pop culture", "daily life", "family", "fashion & style", "film, tv & video",
    "fitness & health", "food & dining", "gaming", "learning & education", "music", "news & politics", "hobbies", "relationships",
    "science & technology", "sports", "travel & adventure", "school & students", "law", "medicine", "energy", "finance",
    "meetings & appointments", "software",
)  # fmt: skip
Verdict = Callable[[Tensor, Tensor, Translator], tuple[float, str]]


def verdict(source: Tensor, target: Tensor, translator: Translator) -> tuple[float, str]:
    """A score in [0, 1], and aligned | doubtful | failed, from unpaired data only."""
    from pipelines.measures.verdict import verdict as judged  # the one place where this module meets it

    found = judged(source, target, translator)
    return (float(found[0]), str(found[1])) if isinstance(found, tuple) else (float(found.score), str(found.word))


@dataclass(frozen=True)
class Known:
    """One encoder as the attacker has it: own texts, their vectors, and the encoder to query."""

    encoder: str
    texts: list[str]
    vectors: Tensor  # (m, e)
    encode: querying.Encode


@dataclass(frozen=True)
class Attempt:
    """The dump, aligned to one encoder."""

    known: Known
    translator: Translator
    score: float
    word: str
    seconds: float


@dataclass
class Findings:
    """All that the page shows."""

    dump: str
    about: dict[str, Any]
    attempts: list[Attempt]
    best: Attempt
    attributes: list[dict[str, Any]] = field(default_factory=list)
    inversions: list[dict[str, Any]] = field(default_factory=list)
    defences: list[dict[str, Any]] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def evidence(self) -> bool:
        return self.best.word == "aligned"


def audit(dump: Path, texts: Path | None, row: params.Audit, study: params.Study, judge: Verdict = verdict) -> Findings:
    """Fit every encoder, judge, pick the best, and only if it is aligned infer, invert and try the defences."""
    clock = Clock()
    taken = dumps.sample(dump, row.limit, row.seed)
    vectors = torch.from_numpy(taken.vectors)
    about = {"vectors": taken.rows, "used": len(vectors), "dimension": vectors.shape[1]}
    about |= {"left out (zero, NaN)": taken.left_out, "repeated": taken.repeated}
    clock.lap("read")
    own = known_texts(texts, row, study)
    attempts = []
    for encoder in row.encoders or [n for n, e in study.encoders.items() if e.source != "given"]:
        known = embedded(encoder, own, texts is None, row, study)
        clock.lap(f"embed {encoder}")
        attempts.append(attempt(vectors, known, row, judge))
        clock.lap(f"fit {encoder}")
    if not attempts:
        raise BadInput("audit: the study has no encoder to try")
    best = max(attempts, key=lambda a: (("failed", "doubtful", "aligned").index(a.word), a.score))
    found = Findings(dump.name, about, attempts, best, seconds=clock.laps)
    if found.evidence:
        found.attributes = infer(vectors, best, row)
        clock.lap("infer")
        found.inversions = inverted(vectors, best, row)
        clock.lap("invert")
        found.defences = defended(vectors, best, row, judge)
        clock.lap("defences")
    return found


class Clock:
    """Seconds since the last lap, by name."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.monotonic()

    def lap(self, name: str) -> None:
        now = time.monotonic()
        self.laps[name], self._last = now - self._last, now


# ---------------------------------------------------------------- what the attacker has

TEXT_FILES = (".txt", ".md", ".jsonl", ".parquet", ".csv")


def known_texts(path: Path | None, row: params.Audit, study: params.Study) -> list[str]:
    """The auditor's own texts, distinct, at most `known`, drawn with the row's seed. Bytes that are not UTF-8 become �."""
    if path is None:
        texts = store.read_corpus(row.corpus, ["text"])["text"].to_list()
    else:
        if not path.exists():
            raise BadInput(f"{path}: there is no such file or folder of texts")
        files = [path] if path.is_file() else sorted(f for f in path.rglob("*") if f.suffix.lower() in TEXT_FILES)
        texts = [t for f in files for t in _texts(f)]
    texts = [t for t in dict.fromkeys(" ".join(t.split()) for t in texts if t) if t]
    if len(texts) < 100:
        raise BadInput(
            f"{path or row.corpus}: {len(texts)} distinct texts; an attack needs at least 100, and gains from thousands"
        )
    order = torch.randperm(len(texts), generator=torch.Generator().manual_seed(row.seed))[: row.known]
    return [texts[i] for i in order]


def _texts(file: Path) -> list[str]:
    """The texts of one file: its column `text` (or body), or the paragraphs of a text file."""
    import polars as pl

    try:
        match file.suffix.lower():
            case ".parquet":
                frame = pl.read_parquet(file)
            case ".csv":
                frame = pl.read_csv(file, infer_schema=False, encoding="utf8-lossy")
            case ".jsonl":
                frame = pl.read_ndjson(file.read_bytes().decode("utf-8", "replace").encode())
            case _:
                return file.read_bytes().decode("utf-8", "replace").split("\n\n")
    except (pl.exceptions.PolarsError, OSError) as error:
        raise BadInput(f"{file}: cannot be read: {' '.join(str(error).split())[:160]}") from None
    named = [c for c in ("text", "body", "content", "document") if c in frame.columns]
    if not named or frame[named[0]].dtype != pl.String:
        raise BadInput(f"{file}: there is no column `text`; there are: {', '.join(frame.columns)}")
    return frame[named[0]].drop_nulls().to_list()


def embedded(encoder: str, texts: list[str], of_study: bool, row: params.Audit, study: params.Study) -> Known:
    """The texts by one encoder: read where the study has embedded them, else encoded now."""
    encode = querying.encoder(study, encoder)
    for name, space in study.embed.items():
        if (
            of_study
            and (space.corpus, space.encoder) == (row.corpus, encoder)
            and store.embeddings_path(name).is_file()
        ):
            corpus, there = store.read_corpus(row.corpus, ["text"])["text"].to_list(), store.read_embeddings(name)
            at = {" ".join(t.split()): i for i, t in enumerate(corpus)}
            return Known(encoder, texts, there.vectors[[at[t] for t in texts]], encode)
    return Known(encoder, texts, encode(texts), encode)


# ---------------------------------------------------------------- the attack


def attempt(vectors: Tensor, known: Known, row: params.Audit, judge: Verdict) -> Attempt:
    """Fit the dump to one encoder, without a single pair, and judge."""
    start = time.monotonic()
    translator = params.aligner_module(row.aligner).fit(vectors, known.vectors, row.settings, row.seed)
    with torch.inference_mode():
        score, word = judge(vectors, known.vectors, translator)
    return Attempt(known, translator, score, word, time.monotonic() - start)


@torch.inference_mode()
def infer(vectors: Tensor, best: Attempt, row: params.Audit) -> list[dict[str, Any]]:
    """How many vectors are nearest to each label, most first."""
    labels = list(row.labels or TOPICS)
    there = best.known.encode([row.template.format(label=label) for label in labels])
    first = attributes.order(best.translator(vectors), there)[:, 0]
    counts = torch.bincount(first, minlength=len(labels))
    return [
        {"label": labels[i], "vectors": int(counts[i]), "share": int(counts[i]) / len(vectors)}
        for i in counts.argsort(descending=True, stable=True).tolist()
        if counts[i]
    ]


def inverted(vectors: Tensor, best: Attempt, row: params.Audit) -> list[dict[str, Any]]:
    """`shown` vectors, drawn with the row's seed: what the inverter writes, and the nearest of the attacker's own texts."""
    known, generator = best.known, torch.Generator().manual_seed(row.seed)
    space = Space.of(known.vectors)
    rows = torch.randperm(len(vectors), generator=generator)[: row.shown]
    with torch.inference_mode():
        given = space(best.translator(vectors[rows]))
    own = space(known.vectors)
    train = hub.train if isinstance(row.inverter, hub.Settings) else decoder.train
    model: Any = train(own, known.texts, row.inverter, row.seed)
    queries = search.Queries(known.encode, space)
    guesses = search.search(model, given, queries, row.search, row.seed)
    near = retrieval.nearest(given, own, known.texts)
    return [
        {"row": int(i), "guess": model.text(g.draft), "cosine": g.cosine, "nearest known text": t[0]}
        for i, g, t in zip(rows, guesses, near, strict=True)
    ]


def defences(names: Sequence[str]) -> list[Defence]:
    """`noise 0.1` -> Defence("noise", 0.1)"""
    out = []
    for name in names:
        kind, _, scale = name.partition(" ")
        try:
            out.append(Defence(kind, float(scale or 0)))
        except ValueError:
            raise BadInput(f"audit: {name!r} is no defence: a kind and a number") from None
    return out


def defended(vectors: Tensor, best: Attempt, row: params.Audit, judge: Verdict) -> list[dict[str, Any]]:
    """Each defence: retrieval recall@10 kept (utility), and what a fresh attack on the defended vectors still gets (leakage).

    Leakage: of the 10 known texts that the attack on the bare vectors names for a vector, the share that the fresh one
    names too, beyond chance. The row `none` repeats the attack with another seed: leakage is to be read beside it.
    """
    some = vectors[torch.randperm(len(vectors), generator=torch.Generator().manual_seed(row.seed))[: row.defended]]
    space = Space.of(best.known.vectors)
    own = space(best.known.vectors)
    module, k = params.aligner_module(row.aligner), 10
    with torch.inference_mode():
        named = retrieval.neighbours(space(best.translator(some)), own, k)
    out = []
    for defence in [Defence("none"), *defences(row.defences)]:
        kept = defend(some, defence, row.seed)
        translator = module.fit(kept, best.known.vectors, row.settings, row.seed + 1)
        with torch.inference_mode():
            score, word = judge(kept, best.known.vectors, translator)
            share = retrieval.overlap(named, retrieval.neighbours(space(translator(kept)), own, k))
        chance = k / len(own)
        leaks = float((share.mean() - chance) / (1 - chance))
        utility = float(recall_kept(some, kept).mean())
        out.append(
            {"defence": str(defence), "utility": utility, "leakage": max(leaks, 0.0), "verdict": word, "score": score}
        )
    return out


# ---------------------------------------------------------------- the command


def main(argv: list[str]) -> int:
    """Run it and write the page. Bad input: one line on stderr, exit code 2."""
    if len(argv) not in (1, 2):
        print("usage: python -m pipelines.audit DUMP [TEXTS]", file=sys.stderr)
        return 2
    try:
        study = params.load()
        row = params.find("audit", "default", study.audit)
        dump, texts = located(argv[0]), located(argv[1]) if len(argv) == 2 else None
        with track.run("audit", dump.stem, row, study.study) as run:
            found = audit(dump, texts, row, study)
            page = audit_page.write(found, store.RESULTS / "audit", dump.stem)
            run.log({a.known.encoder: a.score for a in found.attempts if math.isfinite(a.score)})
            run.artifact(page)
    except BadInput as error:
        print(f"audit {' '.join(argv)}: {error}", file=sys.stderr)
        return 2
    print(page.with_suffix(".md").read_text())
    print(f"the page: {page}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
