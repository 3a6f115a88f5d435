"""audit: vectors with no text and no encoder name, attacked with every encoder of the study ->
report/audit/<dump>.html and .md.

    python -m pipelines.audit DUMP [TEXTS]

DUMP: parquet or a folder of it, arrow, npy, npz, jsonl, a FAISS flat index, or a Chroma folder. TEXTS: the auditor's own texts,
in any form that a corpus of `source: path` may have, of the same kind as those behind the dump where possible; without it, the
corpus of the study's row `audit: default`. For auditing one's own data.
"""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pipelines import freeze_gc
from pipelines.align import each
from pipelines.aligners.core.translator import Translator
from pipelines.aligners.core.verdict import Verdict, judge, replicate
from pipelines.corpora.core.files import located
from pipelines.corpora.core.texts import mapped
from pipelines.corpora.sources.path import read
from pipelines.corpora.sources.vectors import dumps
from pipelines.encoders import query
from pipelines.inverters import Space, search
from pipelines.inverters.attacker import learn
from pipelines.inverters.consensus import Voters, stating
from pipelines.inverters.vec2text import Vec2Text
from pipelines.measures import attributes
from pipelines.measures.defences import Defence, Keys, defend, known_pair_attacks, recall_kept
from pipelines.measures.vectors import mutual_nearest, neighbours, overlap
from pipelines.pages import audit as audit_page
from pipelines.pages.audit import Findings, Tried
from pipelines.runtime import store, track
from pipelines.runtime.device import resolve
from pipelines.runtime.errors import BadInput
from pipelines.study import Audit, aligner_module, params

TOPICS = (
    "arts & culture", "business", "celebrities & pop culture", "daily life", "family", "fashion & style", "film, tv & video",
    "fitness & health", "food & dining", "gaming", "learning & education", "music", "news & politics", "hobbies", "relationships",
    "science & technology", "sports", "travel & adventure", "school & students", "law", "medicine", "energy", "finance",
    "meetings & appointments", "software",
)  # fmt: skip
MARGIN = 0.1  # of cosine
Judge = Callable[[Tensor, Translator, Sequence[Translator]], Verdict]


@dataclass(frozen=True)
class Known:
    """One encoder as the attacker has it: own texts, their vectors, and the encoder to query."""

    encoder: str
    texts: list[str]
    vectors: Tensor  # (m, e)
    encode: query.Encode


@dataclass(frozen=True)
class Attempt:
    """The dump, aligned to one encoder."""

    known: Known
    translator: Translator
    verdict: Verdict
    seconds: float

    @property
    def tried(self) -> Tried:
        return Tried(
            self.known.encoder, len(self.known.texts), self.verdict.score, self.verdict.label, self.seconds
        )


def audit(dump: Path, texts: Path | None, row: Audit, study: params.Study, judge: Judge = judge) -> Findings:
    """Fit every encoder, judge, pick the best, and only if it is aligned infer, invert and try the defences."""
    clock = Clock()
    taken = dumps.sample(dump, row.limit, row.seed)
    device = resolve(row.device, float64=True)
    vectors = torch.from_numpy(taken.vectors).to(device)
    about = {"vectors": taken.rows, "used": len(vectors), "dimension": vectors.shape[1]}
    about |= {
        "left out (zero, NaN)": taken.left_out,
        "left out (far off)": taken.far_off,
        "repeated": taken.repeated,
    }
    clock.lap("read")
    known = known_texts(texts, row)
    attempts, encoders = [], row.encoders or [n for n, e in study.encoders.items() if e.source != "given"]
    for number, encoder in enumerate(encoders, 1):
        say(f"encoder {number} of {len(encoders)}: {encoder}")
        attacker = embedded(encoder, known, texts is None, row, study, device)
        clock.lap(f"embed {encoder}")
        attempts.append(attempt(vectors, attacker, row, judge))
        clock.lap(f"fit {encoder}")
    if not attempts:
        raise BadInput("audit: the study has no encoder to try")
    best = max(
        attempts, key=lambda a: (("failed", "doubtful", "aligned").index(a.verdict.label), a.verdict.score)
    )
    findings = Findings(dump.name, about, [a.tried for a in attempts], best.tried, seconds=clock.laps)
    if findings.evidence:
        say(f"aligned with {best.known.encoder}: topics and texts")
        findings.held = held(vectors, best)
        findings.attributes = infer(vectors, best, row)
        clock.lap("infer")
        findings.inversions = inverted(vectors, best, row)
        clock.lap("invert")
        if row.defences:
            findings.defences = defended(vectors, best, row, judge)
            clock.lap("defences")
    return findings


def say(what: str) -> None:
    """What is being done now."""
    print(what, file=sys.stderr, flush=True)


class Clock:
    """Seconds since the last lap, by name."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.monotonic()

    def lap(self, name: str) -> None:
        now = time.monotonic()
        self.laps[name], self._last = now - self._last, now


# ---------------------------------------------------------------- what the attacker has


def known_texts(where: Path | None, row: Audit) -> list[str]:
    """The auditor's own texts, distinct, at most `known`, drawn with the row's seed."""
    frame = store.read_corpus(row.corpus, ["text"]) if where is None else mapped(read(where), {}, str(where))
    texts = list(dict.fromkeys(t for t in frame["text"].to_list() if t and not t.isspace()))
    if len(texts) < 100:
        raise BadInput(
            f"{where or row.corpus}: {len(texts)} distinct texts; an attack needs at least 100, and gains from thousands"
        )
    order = torch.randperm(len(texts), generator=torch.Generator().manual_seed(row.seed))[: row.known]
    return [texts[i] for i in order]


def embedded(
    encoder: str, texts: list[str], of_study: bool, row: Audit, study: params.Study, device: torch.device
) -> Known:
    """The texts by one encoder, on the device: read where the study has embedded them, else encoded now."""
    encode = query.as_function(store.intact(store.encoder_path(encoder)), study.encoders[encoder], device)
    for name, space in study.embed.items():
        same = of_study and (space.corpus, space.encoder) == (row.corpus, encoder)
        if same and store.embeddings_path(name).is_file():
            at = {t: i for i, t in enumerate(store.read_corpus(row.corpus, ["text"])["text"])}
            return Known(
                encoder, texts, store.read_embeddings(name, device).vectors[[at[t] for t in texts]], encode
            )
    return Known(encoder, texts, encode(texts).to(device), encode)


# ---------------------------------------------------------------- the attack


def attempt(vectors: Tensor, known: Known, row: Audit, judge: Judge) -> Attempt:
    """Fit the dump to one encoder, without a single pair, and judge."""
    start = time.monotonic()
    translator, verdict = fitted(vectors, known.vectors, row, row.seed, judge)
    return Attempt(known, translator, verdict, time.monotonic() - start)


def fitted(vectors: Tensor, known: Tensor, row: Audit, seed: int, judge: Judge) -> tuple[Translator, Verdict]:
    """A translator of all vectors, judged by a replicate that sees half of them."""

    def fit(x: Tensor, y: Tensor, seed: int) -> Translator:
        return aligner_module(row.aligner).fit(x, y, row.settings, seed)

    fits = (partial(fit, vectors, known, seed), partial(replicate, fit, vectors, known, seed))
    translator, replicated = each(fits, row.aligner, (vectors, known))
    return translator, judge(vectors, translator, [replicated])


@torch.inference_mode()
def held(vectors: Tensor, best: Attempt) -> float:
    """Share of the attacker's texts that one vector of the dump stands out for: .02 of e-mails that share no text with the dump,
    .39 of the texts behind it (docs/experiments.md)."""
    space = Space.of(best.known.vectors)
    return float(
        mutual_nearest(space(best.known.vectors), space(best.translator(vectors)), MARGIN).double().mean()
    )


@torch.inference_mode()
def infer(vectors: Tensor, best: Attempt, row: Audit) -> list[dict[str, Any]]:
    """How many vectors are nearest to each label, most first."""
    labels = list(row.labels or TOPICS)
    label_vectors = best.known.encode([row.template.format(label=label) for label in labels])
    first = attributes.order(best.translator(vectors), label_vectors.to(vectors.device))[:, 0].cpu()
    counts = torch.bincount(first, minlength=len(labels))
    return [
        {"label": labels[i], "vectors": int(counts[i]), "share": int(counts[i]) / len(vectors)}
        for i in counts.argsort(descending=True, stable=True).tolist()
        if counts[i]
    ]


def inverted(vectors: Tensor, best: Attempt, row: Audit) -> list[dict[str, Any]]:
    """`shown` vectors, drawn with the row's seed: what the inverter writes, and the nearest of the attacker's own texts."""
    known = best.known
    encode = known.encode if row.search.corrections else None
    attacker = learn(known.vectors, known.texts, row.inverter, row.seed, encode=encode)
    assert not isinstance(attacker.inverter, Vec2Text)  # a row of `audit` refuses it
    rows = torch.randperm(len(vectors), generator=torch.Generator().manual_seed(row.seed))[: row.shown]
    with torch.inference_mode():
        given = attacker.space(best.translator(vectors[rows]))
    queries = search.Queries(known.encode, attacker.space)
    near = attacker.nearest(given, row.search.near)
    guesses = search.search(attacker.inverter, given, queries, row.search, row.seed, attacker.corrector, near)
    peculiar = Voters(attacker.known, known.texts).peculiar(given)
    texts = stating([attacker.inverter.text(g.draft) for g in guesses], peculiar, row.consensus.facts)
    return [
        {"row": int(i), "guess": text, "cosine": g.cosine, "nearest known text": t[0]}
        for i, text, g, t in zip(rows, texts, guesses, near, strict=True)
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


def defended(vectors: Tensor, best: Attempt, row: Audit, judge: Judge) -> list[dict[str, Any]]:
    """Each defence: retrieval recall@10 kept (utility), and what a fresh attack on the defended vectors still gets (leakage),
    without a pair, and with each number of `pairs` that leaves half of the vectors to be read.

    Leakage: of the 10 known texts that the attack on the bare vectors names for a vector, the share that the fresh one
    names too, beyond chance. The row `none` repeats the attack with another seed: leakage is to be read beside it.
    """
    bare = vectors[
        torch.randperm(len(vectors), generator=torch.Generator().manual_seed(row.seed))[: row.defended]
    ]
    space = Space.of(best.known.vectors)
    texts, k = space(best.known.vectors), 10
    with torch.inference_mode():
        named = neighbours(space(best.translator(bare)), texts, k)

    def leakage(translated: Tensor, of: Tensor) -> float:
        share = overlap(of, neighbours(space(translated), texts, k)).mean()
        return max(float((share - k / len(texts)) / (1 - k / len(texts))), 0.0)

    out, every = [], [Defence("none"), *defences(row.defences)]
    for number, defence in enumerate(every, 1):
        say(f"defence {number} of {len(every)}: {defence}")
        kept = defend(bare, defence, row.seed)
        keys = Keys.drawn(bare, int(defence.scale), row.seed) if defence.kind == "cells" else None
        cells = keys.cells(bare) if keys else torch.zeros(len(bare), dtype=torch.long, device=bare.device)
        translator, verdict = fitted(kept, best.known.vectors, row, row.seed + 1, judge)
        line = {
            "defence": str(defence),
            "utility": float(recall_kept(bare, kept, keys=keys).mean()),
        }
        with torch.inference_mode():
            line["leakage"] = leakage(translator(kept), named)
            for n in (n for n in row.pairs if n <= len(bare) / 2):
                line[f"{n} pairs"] = max(
                    leakage(best.translator(x), named[n:]) for x in known_pair_attacks(kept, bare[:n], cells)
                )
        out.append(line | {"verdict": verdict.label, "score": verdict.score})
    return out


# ---------------------------------------------------------------- the command


def main(argv: list[str]) -> int:
    """Run it, write the page, print the verdict. Texts stay on the page. Bad input: one line on stderr, exit code 2."""
    if len(argv) not in (1, 2):
        print("usage: python -m pipelines.audit DUMP [TEXTS]", file=sys.stderr)
        return 2
    freeze_gc()
    try:
        study = params.load()
        row = params.find("audit", "default", study.audit)
        dump, texts = located(argv[0]), located(argv[1]) if len(argv) == 2 else None
        with track.run("audit", dump.stem, row, study.study) as run:
            findings = audit(dump, texts, row, study)
            # Two dumps may have one name, in two folders or in two formats.
            place = hashlib.sha256(str(dump.resolve()).encode()).hexdigest()[:6]
            page = audit_page.write(findings, store.REPORT / "audit", f"{dump.stem}-{place}")
            run.log({tried.encoder: tried.score for tried in findings.tried})
    except BadInput as error:
        print(f"audit {' '.join(argv)}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"audit {' '.join(argv)}: stopped; no page was written", file=sys.stderr)
        return 130
    print("\n".join([audit_page.conclusion(findings), *audit_page.advice(findings)]))
    print(f"the page, with the texts that were read: {page}, and {page.with_suffix('.md').name} beside it")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
