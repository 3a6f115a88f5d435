"""audit: vectors with no text and no encoder name, attacked with every encoder of the study ->
report/audit/<dump>.html and .md.

    python -m pipelines.audit DUMP [TEXTS]

DUMP: parquet or a folder of it, arrow, npy, npz, jsonl, a FAISS flat index, or a Chroma folder. TEXTS: the
auditor's own texts, in any form that a corpus of `source: path` may have. Best are texts of the kind behind
the dump. Without TEXTS the corpus of the row `audit: default` is used. For auditing one's own data.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pipelines import freeze_gc
from pipelines.aligners.core.translator import Translator
from pipelines.aligners.core.verdict import Verdict, judge, replicate
from pipelines.corpora.core.files import located
from pipelines.corpora.core.texts import mapped
from pipelines.corpora.sources.path import read
from pipelines.corpora.sources.vectors import dumps
from pipelines.encoders import query
from pipelines.fitting.fits import run_fits
from pipelines.inverters import Queries, Space
from pipelines.inverters.attacker import learn
from pipelines.inverters.consensus import Voters, stating
from pipelines.inverters.search import search
from pipelines.inverters.vec2text import Vec2Text
from pipelines.measures import attributes
from pipelines.measures.defences import Defence, Keys, defend, known_pair_attacks, recall_kept
from pipelines.measures.vectors import mutual_nearest, neighbours, overlap
from pipelines.pages import audit as audit_page
from pipelines.pages.audit import Findings, Tried
from pipelines.runtime import store, track
from pipelines.runtime.device import resolve
from pipelines.runtime.errors import BadInput, cut
from pipelines.study import Audit, aligner_module, params

TOPICS = (
    "arts & culture", "business", "celebrities & pop culture", "daily life", "family", "fashion & style",
    "film, tv & video", "fitness & health", "food & dining", "gaming", "learning & education", "music",
    "news & politics", "hobbies", "relationships", "science & technology", "sports", "travel & adventure",
    "school & students", "law", "medicine", "energy", "finance", "meetings & appointments", "software",
)  # fmt: skip
ALIGNER = "wasserstein_procrustes"
MARGIN = 0.1  # of cosine
SHOWN = 12  # vectors that are inverted
DEFENDED = 6000  # vectors that each defence is tried on
PAIRS = (100, 1000)  # known texts of further attackers on defended vectors
NEAREST = 10  # known texts that an attack names for a vector
READ = "read the dump"
VERDICTS = ("failed", "doubtful", "aligned")  # worst first
Judge = Callable[[Tensor, Translator, Sequence[Translator]], Verdict]


@dataclass(frozen=True)
class Attempt:
    """The attack with one encoder: its vectors of the attacker's texts, and the dump aligned to them."""

    encoder: str
    texts: list[str]
    known: Tensor  # (m, e) raw, of the texts
    encode: query.Encode
    translator: Translator
    verdict: Verdict
    seconds: float  # of the fit

    @property
    def tried(self) -> Tried:
        v = self.verdict
        return Tried(self.encoder, len(self.texts), v.score, v.label, self.seconds)


def audit(dump: Path, texts: Path | None, row: Audit, study: params.Study, judge: Judge = judge) -> Findings:
    """Attack a dump. Topics, inverted texts and defences are computed only if an encoder is aligned.

    Raises BadInput for a dump or texts that cannot be read, and for a study without encoders.
    """
    encoders = row.encoders or [name for name, e in study.encoders.items() if e.source != "given"]
    if not encoders:
        raise BadInput("audit: the study has no encoder to try")
    every = [Defence("none"), *parsed(row.defences)] if row.defences else []
    steps = Steps(encoders, [str(defence) for defence in every], DEFENDED / row.limit)

    # 1. The dump, and the attacker's texts.
    with steps(READ):
        taken = dumps.sample(dump, row.limit, row.seed)
        known = known_texts(texts, row)
    device = resolve(row.device, float64=True)
    vectors = torch.from_numpy(taken.vectors).to(device)
    about = {
        "vectors": taken.rows,
        "used": len(vectors),
        "dimension": vectors.shape[1],
        "left out (zero, NaN)": taken.left_out,
        "left out (far off)": taken.far_off,
        "repeated": taken.repeated,
    }

    # 2. A fit and a verdict for each encoder. The best verdict wins, then the best score.
    attempts = []
    for encoder in encoders:
        with steps(f"encoder {encoder}"):
            own, encode = embedded(encoder, known, texts is None, row, study)
            own = own.to(device)
            start = time.monotonic()
            translator, verdict = fitted(vectors, own, row.seed, judge)
            seconds = time.monotonic() - start
        attempts.append(Attempt(encoder, known, own, encode, translator, verdict, seconds))
    best = max(attempts, key=lambda a: (VERDICTS.index(a.verdict.label), a.verdict.score))
    findings = Findings(dump.name, about, [a.tried for a in attempts], best.tried, seconds=steps.seconds)
    if not findings.evidence:
        return findings

    # 3. Topics.
    with steps("topics"):
        findings.in_dump = in_dump(vectors, best)
        findings.attributes = topics(vectors, best, row)

    # 4. Inversion.
    with steps("inverted texts"):
        findings.inversions = inverted(vectors, best, row)

    # 5. Defences.
    findings.defences = defended(vectors, best, row, every, judge, steps)
    return findings


class Steps:
    """Print which step of how many is running, with an estimate of the time left. Keep the seconds of each
    step.

    Time left is estimated from the fits so far: a fit for each encoder, about as much for the inverter, and
    `share` of a fit for each defence.
    """

    def __init__(self, encoders: Sequence[str], defences: Sequence[str], share: float) -> None:
        self.left = {READ: 0.0} | {f"encoder {name}": 1.0 for name in encoders}
        self.left |= {"topics": 0.0, "inverted texts": 1.0}
        self.left |= {f"defence {name}": share for name in defences}
        self.count, self.done = len(self.left), 0.0
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        at = self.count - len(self.left) + 1
        print(f"audit: step {at} of {self.count}: {name}{self.estimate()}", file=sys.stderr, flush=True)
        start = time.monotonic()
        yield
        self.seconds[name] = time.monotonic() - start
        self.done += self.left.pop(name)

    def estimate(self) -> str:
        """Return the time left in words. Until the first fit is done there is none."""
        if not self.done:
            return ""
        spent = sum(seconds for name, seconds in self.seconds.items() if name != READ)
        left = sum(self.left.values()) * spent / self.done
        words = f"{left / 60:.0f} min" if left > 90 else f"{left:.0f} s"
        return f"; at most about {words} left"


# ---------------------------------------------------------------- 1. what the attacker has


def known_texts(where: Path | None, row: Audit) -> list[str]:
    """Return the distinct texts of the attacker, at most `known`, drawn with the row's seed."""
    frame = store.read_corpus(row.corpus, ["text"]) if where is None else mapped(read(where), {}, str(where))
    texts = list(dict.fromkeys(t for t in frame["text"].to_list() if t and not t.isspace()))
    if len(texts) < 100:
        raise BadInput(
            f"{where or row.corpus}: {len(texts)} distinct texts; "
            "an attack needs at least 100, and gains from thousands"
        )
    order = torch.randperm(len(texts), generator=torch.Generator().manual_seed(row.seed))[: row.known]
    return [texts[i] for i in order]


# ---------------------------------------------------------------- 2. fits


def embedded(
    encoder: str, texts: list[str], of_study: bool, row: Audit, study: params.Study
) -> tuple[Tensor, query.Encode]:
    """Return vectors of the texts by one encoder, and the encoder. Vectors that the study has are read."""
    device = resolve(row.device, float64=True)
    encode = query.as_function(store.intact(store.encoder_path(encoder)), study.encoders[encoder], device)
    for name, space in study.embed.items():
        same = of_study and (space.corpus, space.encoder) == (row.corpus, encoder)
        if same and store.embeddings_path(name).is_file():
            at = {t: i for i, t in enumerate(store.read_corpus(row.corpus, ["text"])["text"])}
            return store.read_embeddings(name, device).vectors[[at[t] for t in texts]], encode
    return encode(texts), encode


def fitted(vectors: Tensor, known: Tensor, seed: int, judge: Judge) -> tuple[Translator, Verdict]:
    """Fit a translator to all vectors, without a pair, and judge it by a replicate that sees half of them."""
    aligner = aligner_module(ALIGNER)

    def fit(x: Tensor, y: Tensor, seed: int) -> Translator:
        return aligner.fit(x, y, aligner.Settings(), seed)

    fits = (partial(fit, vectors, known, seed), partial(replicate, fit, vectors, known, seed))
    translator, replicated = run_fits(fits, ALIGNER, (vectors, known))
    return translator, judge(vectors, translator, [replicated])


# ---------------------------------------------------------------- 3. topics


@torch.inference_mode()
def in_dump(vectors: Tensor, best: Attempt) -> float:
    """Return the share of the attacker's texts that are probably in the dump.

    It was .02 of e-mails without a text in the dump, and .39 of the texts behind it
    (docs/experiments/defences.md).
    """
    space = Space.of(best.known)
    found = mutual_nearest(space(best.known), space(best.translator(vectors)), MARGIN)
    return float(found.double().mean())


@torch.inference_mode()
def topics(vectors: Tensor, best: Attempt, row: Audit) -> list[dict[str, Any]]:
    """Count the vectors nearest to each label, most first."""
    labels = list(row.labels or TOPICS)
    label_vectors = best.encode([attributes.TEMPLATE.format(label) for label in labels])
    first = attributes.order(best.translator(vectors), label_vectors.to(vectors.device))[:, 0].cpu()
    counts = torch.bincount(first, minlength=len(labels))
    order = [i for i in counts.argsort(descending=True, stable=True).tolist() if counts[i]]
    return [
        {"label": labels[i], "vectors": int(counts[i]), "share": int(counts[i]) / len(vectors)} for i in order
    ]


# ---------------------------------------------------------------- 4. inversion


def inverted(vectors: Tensor, best: Attempt, row: Audit) -> list[dict[str, Any]]:
    """Invert SHOWN vectors, drawn with the row's seed. Beside each guess stands the nearest known text."""
    encode = best.encode if row.search.corrections else None
    attacker = learn(best.known, best.texts, row.inverter, row.seed, encode=encode)
    assert not isinstance(attacker.inverter, Vec2Text)  # a row of `audit` refuses it
    rows = torch.randperm(len(vectors), generator=torch.Generator().manual_seed(row.seed))[:SHOWN]
    with torch.inference_mode():
        given = attacker.space(best.translator(vectors[rows]))
    queries = Queries(best.encode, attacker.space)
    near = attacker.nearest(given, row.search.near)
    guesses = search(attacker.inverter, given, queries, row.search, row.seed, attacker.corrector, near)
    peculiar = Voters(attacker.known, best.texts).peculiar(given)
    texts = stating([attacker.inverter.text(g.draft) for g in guesses], peculiar, row.consensus.facts)
    return [
        {"row": int(i), "guess": text, "cosine": g.cosine, "nearest known text": t[0]}
        for i, text, g, t in zip(rows, texts, guesses, near, strict=True)
    ]


# ---------------------------------------------------------------- 5. defences


def parsed(names: Sequence[str]) -> list[Defence]:
    """Return defences by name: `noise 0.1` is Defence("noise", 0.1). Raises BadInput."""
    out = []
    for name in names:
        kind, _, scale = name.partition(" ")
        try:
            out.append(Defence(kind, float(scale or 0)))
        except ValueError:
            raise BadInput(f"audit: {name!r} is no defence: a kind and a number") from None
    return out


def defended(
    vectors: Tensor, best: Attempt, row: Audit, defences: Sequence[Defence], judge: Judge, steps: Steps
) -> list[dict[str, Any]]:
    """Return what each defence keeps of retrieval (utility: recall@10), and what it leaves of the attack
    (leakage).

    The attack on the bare vectors names 10 known texts for each. Leakage is the share of them that a new
    attack on the defended vectors names, too, beyond chance. `none` repeats the attack with another seed, for
    comparison. Other attackers know the bare vectors of n texts, for each n of PAIRS that leaves half of
    the vectors to be read.
    """
    drawn = torch.randperm(len(vectors), generator=torch.Generator().manual_seed(row.seed))[:DEFENDED]
    bare, space = vectors[drawn], Space.of(best.known)
    texts = space(best.known)
    with torch.inference_mode():
        named = neighbours(space(best.translator(bare)), texts, NEAREST)

    def leakage(translated: Tensor, of: Tensor) -> float:
        share = overlap(of, neighbours(space(translated), texts, NEAREST)).mean()
        chance = NEAREST / len(texts)
        return max(float((share - chance) / (1 - chance)), 0.0)

    out = []
    for defence in defences:
        with steps(f"defence {defence}"):
            kept = defend(bare, defence, row.seed)
            keys = Keys.drawn(bare, int(defence.scale), row.seed) if defence.kind == "cells" else None
            cells = keys.cells(bare) if keys else torch.zeros(len(bare), dtype=torch.long, device=bare.device)
            translator, verdict = fitted(kept, best.known, row.seed + 1, judge)
            line: dict[str, Any] = {"defence": str(defence)}
            line["utility"] = float(recall_kept(bare, kept, keys=keys).mean())
            with torch.inference_mode():
                line["leakage"] = leakage(translator(kept), named)
                for n in (n for n in PAIRS if n <= len(bare) / 2):
                    attacks = known_pair_attacks(kept, bare[:n], cells)
                    line[f"{n} pairs"] = max(leakage(best.translator(x), named[n:]) for x in attacks)
            out.append(line | {"verdict": verdict.label, "score": verdict.score})
    return out


# ---------------------------------------------------------------- the command


def page_folder() -> Path:
    """Return the folder of the pages. Raises BadInput, before any work, if nothing can be written there."""
    folder = store.REPORT / "audit"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError as error:
        raise BadInput(f"{folder}: the page cannot be written there: {error.strerror}") from None


def page_name(dump: Path) -> str:
    """Return a name for the page of a dump. Two dumps with one name, in two folders or two formats, have
    two.
    """
    digest = hashlib.sha256(os.fsencode(dump.resolve())).hexdigest()[:6]
    readable = re.sub(r"[^\w.-]+", "_", dump.stem)[:60]
    return f"{readable}-{digest}"


def main(argv: list[str]) -> int:
    """Audit, write the page, print the verdict. Texts stay on the page. Bad input is one line on stderr, exit
    code 2.
    """
    if len(argv) not in (1, 2):
        print("usage: python -m pipelines.audit DUMP [TEXTS]", file=sys.stderr)
        return 2
    freeze_gc()
    try:
        study = params.load()
        row = params.find("audit", "default", study.audit)
        dump, texts = located(argv[0]), located(argv[1]) if len(argv) == 2 else None
        folder, name = page_folder(), page_name(dump)
        with track.run("audit", name, row, study.study) as run:
            findings = audit(dump, texts, row, study)
            page = audit_page.write(findings, folder, name)
            run.log({tried.encoder: tried.score for tried in findings.tried})
    except BadInput as error:
        print(cut(f"audit {' '.join(argv)}: {error}", 1000), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(cut(f"audit {' '.join(argv)}: stopped; no page was written", 1000), file=sys.stderr)
        return 130
    print("\n".join([audit_page.conclusion(findings), *audit_page.advice(findings)]))
    print(f"the page, with the texts that were read: {page}, and {page.with_suffix('.md').name} beside it")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
