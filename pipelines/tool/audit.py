"""audit: attack vectors without their texts or the name of their encoder, and write one page.

Use it on your own data. It works best with texts of the kind behind the dump.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import sys
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from pipelines.aligners.core.cloud import checked, dimensions
from pipelines.aligners.core.parts import judge_parts
from pipelines.aligners.core.translator import Linear, Translator
from pipelines.aligners.core.verdict import WHOLE, Verdict
from pipelines.corpora.core.files import located
from pipelines.encoders import query
from pipelines.fitting import arrays
from pipelines.inverters import Queries, Space, decoder, search
from pipelines.inverters.attacker import learn
from pipelines.inverters.vec2text import Vec2Text
from pipelines.measures import attributes, facts
from pipelines.measures.defences import Defence, Keys, defend, known_pair_attacks, recall_kept
from pipelines.measures.fingerprint import MAX_DISTANCE, Fingerprint, spectral_distance
from pipelines.measures.vectors import neighbours, overlap, shuffled
from pipelines.pages import audit as audit_page
from pipelines.pages.audit import INVERTED, Findings, Tried, best_of
from pipelines.runtime.device import resolve
from pipelines.runtime.errors import BadInput
from pipelines.runtime.files import check_writable, write_text
from pipelines.tool import Answer, dumps, encoders, gate

TOPICS = (
    "arts & culture", "business", "celebrities & pop culture", "daily life", "family", "fashion & style",
    "film, tv & video", "fitness & health", "food & dining", "gaming", "learning & education", "music",
    "news & politics", "hobbies", "relationships", "science & technology", "sports", "travel & adventure",
    "school & students", "law", "medicine", "energy", "finance", "meetings & appointments", "software",
)  # fmt: skip
MEASURED = 1000  # vectors that are compared with their true texts
INVERTED_WITH_TRUTH = 48  # of these, vectors that are inverted
DEFENDED = 6000  # vectors that each defence is tried on
LEAST = 100  # vectors, and texts, that an attack needs
PAIRS = (100, 1000)  # undefended vectors that further attackers know
NEAREST = 10  # known texts that an attack names for a vector
DEFENCES = (
    "noise 0.1", "noise 0.3", "noise 1", "int8", "binary", "round 1", "drop 0.5", "drop 0.25", "rotate",
    "cells 64",
)  # fmt: skip
INVERTER = decoder.Settings(vocabulary=3000, width=128, layers=2, epochs=4)
SEARCH = search.Settings(splices=4)


Opened = dict[str, tuple[query.Encode, bool]]  # encoders, and whether they have the dump's width


@dataclass(frozen=True)
class Options:
    """Options of an audit. Raises BadInput."""

    texts: str | None = None  # a file or folder with texts of the attacker; None: docstrings
    encoders: tuple[str, ...] = field(default_factory=lambda: (encoders.BOTH, *encoders.installed()))
    limit: int = 20_000  # vectors of the dump, drawn at random
    known: int = 6000  # texts of the attacker
    quick: bool = False  # give up after the first 30 candidate maps: faster, and may miss the map
    labels: tuple[str, ...] = TOPICS  # topics to look for
    defences: tuple[str, ...] = DEFENCES
    seed: int = 0
    device: str = "auto"
    column: str | None = None  # of the dump
    collection: str | None = None  # of the dump
    truth: str | None = None  # the texts behind the dump, in its order, to check what is read

    def __post_init__(self) -> None:
        for name in ("limit", "known"):
            if getattr(self, name) < LEAST:
                raise BadInput(f"--{name} {getattr(self, name)}: at least {LEAST} are needed")
        for name in ("encoders", "labels"):
            if not getattr(self, name):
                raise BadInput(f"--{name}: at least one is needed")
        for name in self.encoders:
            encoders.row_of(name)
        resolve(self.device, float64=True)
        self.defences_to_try()

    def defences_to_try(self) -> list[Defence]:
        """Return `none`, then the defences; an empty list if there are none. Raises BadInput."""
        return [*dict.fromkeys(map(Defence.of, ("none", *self.defences)))] if self.defences else []

    @classmethod
    def of(cls, args: Namespace) -> Options:
        """Return the options of a command line. Those that are not given have their defaults."""
        given = {name: getattr(args, name, None) for name in cls.__dataclass_fields__}
        return cls(**{name: value for name, value in given.items() if value is not None})


class Fitted(NamedTuple):
    """A translator of a dump, and how it was judged."""

    translator: Translator
    verdict: Verdict
    replicates: list[Translator]
    by_fingerprint: bool = False  # the fingerprint names the encoder, so no fit was made


@dataclass(frozen=True)
class Attempt:
    """The attack with one encoder: its vectors of the attacker's texts, and the dump aligned to them."""

    tried: Tried
    texts: list[str]
    known: Tensor  # (m, e) raw, of the texts
    encode: query.Encode
    translator: Translator
    # (n,) bool, the vectors of the dump that are mapped correctly; None: no evidence
    right: Tensor | None = None


def audit(dump: Path, options: Options, keep: Callable[[Findings], object] | None = None) -> Findings:
    """Attack a dump. Topics, inverted texts and defences need an attack that is *aligned* or *partial*.

    Once the first encoder has been tried, each step begins with `keep(findings so far)`. From then on, Ctrl-C
    ends the audit and returns these findings. Raises BadInput for a dump or texts that cannot be read.
    """
    print("audit: read the dump", file=sys.stderr, flush=True)
    taken, vectors = sampled(dump, options)
    if taken.left_out or taken.far_off:
        bad = f"{taken.left_out} of {taken.rows} vectors, zero or NaN, and {taken.far_off} far off"
        print(f"audit: left out: {bad}", file=sys.stderr)
    opened = by_width(vectors, options)
    texts = known_texts(options)
    truth = true_texts(options.truth, taken)
    findings = Findings(
        dump.resolve().name,
        about={
            "vectors": taken.rows,
            "used": len(vectors),
            "dimension": vectors.shape[1],
            "left out (zero, NaN)": taken.left_out,
            "left out (far off)": taken.far_off,
            "repeated": taken.repeated,
        },
    )
    weights = {f"encoder {name}": 1.0 for name in opened} | {"topics": 0.0, "inverted texts": 1.0}
    share = min(1.0, DEFENDED / len(vectors))
    weights |= {f"defence {defence}": share for defence in options.defences_to_try()}

    def begun(step: str) -> None:
        findings.unfinished = step
        if keep and findings.tried:
            keep(findings)

    steps = Steps("audit", weights, begun)
    try:
        best = try_encoders(vectors, texts, opened, options, steps, findings.tried)
        if best is None:
            raise BadInput(f"{dump}: {len(vectors)} vectors, but a fit needs at least {LEAST}")
        if findings.evidence:
            exploit(taken, vectors, best, options, steps, findings, truth)
        elif options.defences:
            findings.about["defences"] = "not tried: no attack works"
        findings.unfinished = ""
    except KeyboardInterrupt:
        if not findings.tried:
            raise
    return findings


def exploit(
    taken: dumps.Sample,
    vectors: Tensor,
    best: Attempt,
    options: Options,
    steps: Steps,
    findings: Findings,
    truth: list[str],
) -> None:
    """Read topics and texts with the best translator, then attack defended vectors.

    All of this is about the part of the vectors for which the translator is right. `truth`: the texts behind
    the vectors, if they are known.
    """
    print(f"audit: {best.tried.verdict} with {best.tried.encoder}", file=sys.stderr, flush=True)
    places = taken.places
    if best.tried.share < 1:
        assert best.right is not None
        rows = best.right.nonzero()[:, 0].cpu()
        vectors, places = vectors[best.right], places[rows]
        truth = [truth[i] for i in rows.tolist()] if truth else []
    steps.begin("topics")
    findings.attributes = topics(vectors, best, options.labels)
    steps.begin("inverted texts")
    drawn = shuffled(len(vectors), options.seed).tolist()
    with_truth = [i for i in drawn if truth and truth[i]][:MEASURED]
    inverted = with_truth[:INVERTED_WITH_TRUTH] or drawn[:INVERTED]
    findings.inversions = invert(vectors[inverted], best, options.seed, places[inverted])
    if with_truth:  # the inverted vectors are the first of these
        guesses, texts = [row["guess"] for row in findings.inversions], [truth[i] for i in with_truth]
        findings.leaks = leaks(vectors[with_truth], texts, best, options.labels, guesses)
    if len(vectors) >= LEAST:
        try_defences(vectors, best, options, steps, findings)
    else:
        findings.about["defences"] = f"not tried: at least {LEAST} vectors are needed"


@dataclass
class Steps:
    """Print which step of how many is running, and how long the rest will take.

    The time left is estimated from the steps so far. `weights` says how long each step is, a fit being 1.
    """

    command: str
    weights: dict[str, float]
    begun: Callable[[str], None] | None = None  # gets the name of each step
    start: float = 0.0  # when the first step with a weight began

    def begin(self, name: str) -> None:
        """Print that a step begins. Until a step with a weight is done there is no estimate."""
        if self.begun:
            self.begun(name)
        at = list(self.weights).index(name)
        weights = list(self.weights.values())
        done, left = sum(weights[:at]), ""
        if not done:
            self.start = time.monotonic()
        else:
            seconds = sum(weights[at:]) * (time.monotonic() - self.start) / done
            words = f"{seconds / 60:.0f} min" if seconds > 90 else f"{seconds:.0f} s"
            left = f"; {words} left, or less"
        print(f"{self.command}: step {at + 1} of {len(weights)}: {name}{left}", file=sys.stderr, flush=True)


# ---------------------------------------------------------------- what the attacker has


def sampled(dump: Path, options: Options) -> tuple[dumps.Sample, Tensor]:
    """Return a sample of a dump, and its vectors (n, d) on the device."""
    device = resolve(options.device, float64=True)
    taken = dumps.sample(dump, options.limit, options.seed, options.column, options.collection)
    return taken, checked(str(dump), torch.from_numpy(taken.vectors)).to(device)


def known_texts(options: Options) -> list[str]:
    """Return the distinct texts of the attacker, at most `known`. Raises BadInput for under LEAST."""
    texts = encoders.texts_of(None if options.texts is None else located(options.texts))
    if len(texts) < LEAST:
        raise BadInput(f"{options.texts}: {len(texts)} distinct texts, but an attack needs at least {LEAST}")
    return encoders.drawn(texts, options.known, options.seed)


# ---------------------------------------------------------------- fits


def by_width(vectors: Tensor, options: Options) -> Opened:
    """Open the encoders. Those with the width of the vectors (n, d) come first.

    Others are left out if there are fewer than LEAST vectors: they need a fit.
    """
    opened = {}
    for name in options.encoders:
        encode = encoders.opened(name, vectors.device)
        same_width = encode(["width"]).shape[1] == vectors.shape[1]
        if same_width or len(vectors) >= LEAST:
            opened[name] = encode, same_width
    return dict(sorted(opened.items(), key=lambda item: not item[1][1]))


def try_encoders(
    vectors: Tensor,
    texts: list[str],
    opened: Opened,
    options: Options,
    steps: Steps,
    tried: list[Tried],
) -> Attempt | None:
    """Fit and judge a translator for each encoder. Append the results, and return the best attempt.

    With fewer than LEAST vectors no translator is fitted, so there may be none.

    Encoders of the dump's width are tried first. Once the dump's own encoder is aligned, no other is tried.
    Encoders of another width are left out once one of the dump's width is aligned, partial or named by its
    fingerprint, or once several encoders side by side are aligned or partial.
    """
    attempts: list[Attempt] = []
    leak_found = own_encoder_aligned = False
    for encoder, (encode, same_width) in opened.items():
        step = f"encoder {encoder}"
        if own_encoder_aligned or (leak_found and not same_width):
            del steps.weights[step]
            continue
        steps.begin(step)
        one = attempt(vectors, texts, encoder, encode, options)
        if one is None:
            continue
        attempts.append(one)
        tried.append(one.tried)
        if not one.tried.fitted:
            steps.weights[step] = 0.0  # its time tells nothing about a fit's
        own_encoder_aligned |= one.tried.own_encoder and one.tried.verdict == "aligned"
        tells = same_width or "+" in encoder
        leak_found |= not one.tried.fitted or (tells and one.right is not None)
    return attempts[tried.index(best_of(tried))] if tried else None


def attempt(
    vectors: Tensor, texts: list[str], encoder: str, encode: query.Encode, options: Options
) -> Attempt | None:
    """Attack with one encoder; None if the vectors are too few for a fit, and no fingerprint names them."""
    known = checked(f"encoder {encoder}", encode(texts)).to(vectors.device)
    fingerprint = Fingerprint.of(known)
    if len(vectors) < LEAST and not fingerprint.recognises(vectors):
        return None
    start = time.monotonic()
    fitted = identify_or_fit(vectors, known, fingerprint, options.quick, options.seed)
    translator, verdict, right = fitted.translator, fitted.verdict, None
    if verdict.share:
        right = judge_parts(vectors, translator, known, fitted.replicates).rows(vectors)
    # A right map alone does not tell: vectors of other encoders can be mapped correctly, too
    enough = vectors.shape[1] == known.shape[1] and right is not None and int(right.sum()) >= LEAST
    near = enough and spectral_distance(vectors[right], known) < MAX_DISTANCE
    tried = Tried(
        encoder,
        known_texts=len(texts),
        score=verdict.score,
        verdict=verdict.label,
        seconds=time.monotonic() - start,
        share=verdict.share,
        fingerprint_share=fingerprint_share(vectors, fingerprint),
        fitted=not fitted.by_fingerprint,
        own_encoder=fitted.by_fingerprint or near,
    )
    return Attempt(tried, texts, known, encode, translator, right)


def fingerprint_share(vectors: Tensor, fingerprint: Fingerprint) -> float:
    """Return the share of vectors that match a fingerprint, each by itself."""
    if vectors.shape[1] != len(fingerprint.mean):
        return 0.0
    threshold = fingerprint.threshold(vectors[:1])  # the same for any single vector
    return float((fingerprint.match(vectors) > threshold).double().mean())


def identify_or_fit(
    vectors: Tensor, known: Tensor, fingerprint: Fingerprint, quick: bool, seed: int
) -> Fitted:
    """Return a translator of the vectors to the space of the known ones, and how it was judged.

    If the fingerprint of the known ones names the vectors, it is the identity between centred vectors. Else
    fit without a pair, and judge by a replicate (`core.verdict.part_for_replicate`): first with 30 candidate
    maps, and then, unless that is *aligned* or `quick`, with all. Return the better fit.
    """
    if fingerprint.recognises(vectors):
        same = Linear.of(torch.eye(known.shape[1], device=known.device), vectors, known)
        share = float(judge_parts(vectors, same, known).rows(vectors).double().mean())
        label = "aligned" if share >= WHOLE else "partial"
        verdict = Verdict(1.0, label, 1.0, dimensions(vectors), share)
        return Fitted(same, verdict, [], by_fingerprint=True)
    vectors, known = arrays.usable(vectors, known)
    first = Fitted(*arrays.fit_and_judge(vectors, known, seed, restarts=0, repeats=[30]))
    if quick or first.verdict.label == "aligned":
        return first
    longer = Fitted(*arrays.fit_and_judge(vectors, known, seed, restarts=0))
    return max(first, longer, key=lambda one: one.verdict.rank)


# ---------------------------------------------------------------- topics


@torch.inference_mode()
def topics(vectors: Tensor, best: Attempt, labels: Sequence[str]) -> list[dict[str, Any]]:
    """Count the vectors nearest to each label, most first."""
    counts = Counter(nearest_labels(best.translator(vectors), best, labels).tolist())
    order = sorted(counts, key=lambda i: (-counts[i], i))
    return [{"label": labels[i], "vectors": counts[i], "share": counts[i] / len(vectors)} for i in order]


def nearest_labels(vectors: Tensor, best: Attempt, labels: Sequence[str]) -> Tensor:
    """Return the number of the label nearest to each vector (n, e) of the encoder. (n,)"""
    names = best.encode([attributes.TEMPLATE.format(label) for label in labels])
    return attributes.order(vectors, names.to(vectors.device))[:, 0].cpu()


# ---------------------------------------------------------------- inversion


def invert(vectors: Tensor, best: Attempt, seed: int, places: np.ndarray) -> list[dict[str, Any]]:
    """Invert vectors (n, d). Beside each guess stands the nearest known text.

    `places` (n,): the vectors' rows in the dump, from 0.
    """
    attacker = learn(best.known, best.texts, INVERTER, seed)
    assert not isinstance(attacker.inverter, Vec2Text)  # its settings are another class
    with torch.inference_mode():
        given = attacker.space(best.translator(vectors))
    queries = Queries(best.encode, attacker.space)
    near = attacker.nearest(given, SEARCH.texts_needed)
    _, guesses = search.search(attacker.inverter, given, queries, SEARCH, seed, None, near)
    return [
        {
            "row": int(place),
            "guess": attacker.inverter.text(g.draft),
            "cosine": g.cosine,
            "nearest known text": t[0],
        }
        for place, g, t in zip(places, guesses, near, strict=True)
    ]


# ---------------------------------------------------------------- how much of it is right


def true_texts(path: str | None, taken: dumps.Sample) -> list[str]:
    """Return the texts behind the sample; "" where there is none.

    Raises BadInput if there are not as many as rows of the dump.
    """
    if path is None:
        return []
    texts = encoders.column_of_texts(located(path))
    if len(texts) != taken.rows:
        raise BadInput(f"{path}: {len(texts)} texts; the dump has {taken.rows} vectors")
    return [texts[i] or "" for i in taken.places]


@torch.inference_mode()
def leaks(
    vectors: Tensor, truth: list[str], best: Attempt, labels: Sequence[str], guesses: list[str]
) -> list[dict[str, Any]]:
    """Count what was read right. `floor`: how much is right without the vectors (n, d).

    truth: n true texts. guesses: inverted texts of the first vectors.
    texts: vectors whose nearest true text is their own. By chance this is one vector.
    labels: vectors with the same nearest label as their true text. Floor: always the most frequent label.
    facts: facts of the true text that the guess states. Floor: the guess for the next vector.
    """
    space, translated, true = Space.of(best.known), best.translator(vectors), best.encode(truth)
    nearest = neighbours(space(translated), space(true), 1)[:, 0].cpu()
    read, right = (nearest_labels(x, best, labels) for x in (translated, true))
    stated = [facts.annotate(text) for text in truth[: len(guesses)]]
    of_others = guesses[1:] + guesses[:1]
    found_facts, by_others = (facts.check(said, stated) for said in (guesses, of_others))
    recovered, lucky = (sum(fact.recovered for fact in some) for some in (found_facts, by_others))
    matched = int((nearest == torch.arange(len(truth))).sum())
    same_label, commonest = int((read == right).sum()), int(right.bincount().max())
    return [
        {"what": "texts", "found": matched, "of": len(truth), "floor": 1},
        {"what": "labels", "found": same_label, "of": len(truth), "floor": commonest},
        {"what": "facts", "found": recovered, "of": len(found_facts), "floor": lucky},
    ]


# ---------------------------------------------------------------- defences


@contextmanager
def quiet_fits() -> Iterator[None]:
    """Show no warnings: they would name the dump, but be about a defended copy of it."""
    logger = logging.getLogger("pipelines")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


@quiet_fits()
def try_defences(vectors: Tensor, best: Attempt, options: Options, steps: Steps, findings: Findings) -> None:
    """Add `recall`, the share of the 10 nearest neighbours that is kept, and leakage under each defence.

    The attack on the undefended vectors names 10 known texts for each. Leakage is the share of them that a
    new attack on the defended vectors names, too, beyond chance. `none` repeats the attack with another seed,
    for comparison. Other attackers know the undefended vectors of n texts, for each n of PAIRS that leaves
    half of the vectors to be read.
    """
    drawn = shuffled(len(vectors), options.seed)[:DEFENDED]
    undefended, space = vectors[drawn], Space.of(best.known)
    known, fingerprint = space(best.known), Fingerprint.of(best.known)
    with torch.inference_mode():
        undefended_neighbours = neighbours(space(best.translator(undefended)), known, NEAREST)

    def leakage(translated: Tensor, named: Tensor) -> float:
        share = overlap(named, neighbours(space(translated), known, NEAREST)).mean()
        chance = NEAREST / len(known)
        return max(float((share - chance) / (1 - chance)), 0.0)

    def try_defence(defence: Defence) -> dict[str, Any]:
        keys = Keys.drawn(undefended, int(defence.scale), options.seed) if defence.kind == "cells" else None
        cells = keys.cells(undefended) if keys else undefended.new_zeros(len(undefended), dtype=torch.long)
        defended = keys.lock(undefended, cells) if keys else defend(undefended, defence, options.seed)
        seed = (options.seed + 1) % 2**32
        # Quick, because there are many defences
        fitted = identify_or_fit(defended, best.known, fingerprint, quick=True, seed=seed)
        kept = recall_kept(undefended, defended, keys=keys, undefended_queries=defence.undefended_queries)
        line: dict[str, Any] = {"defence": str(defence), "recall": float(kept.mean())}
        with torch.inference_mode():
            strongest = line["leakage"] = leakage(fitted.translator(defended), undefended_neighbours)
            for n in PAIRS:
                if n > len(undefended) / 2:
                    break
                attacks = known_pair_attacks(defended, undefended[:n], cells)
                leaked = (leakage(best.translator(x), undefended_neighbours[n:]) for x in attacks)
                # An attacker with more pairs can use every attack that needs fewer.
                strongest = line[f"{n} pairs"] = max(strongest, *leaked)
        return line | {"verdict": fitted.verdict.label, "score": fitted.verdict.score}

    for defence in options.defences_to_try():
        steps.begin(f"defence {defence}")
        try:
            findings.defences.append(try_defence(defence))
        except BadInput as error:  # such as sign bits of vectors that are all positive
            findings.about[f"defence {defence}"] = f"cannot be tried: {error}"


# ---------------------------------------------------------------- the command


def run(args: Namespace) -> Answer:
    """Audit, write the page, return the answer. Only the page and its Markdown twin have inverted texts."""
    options, dump = Options.of(args), located(args.dump)
    for path in filter(None, (options.texts, options.truth)):
        located(path)  # before any work
    name = page_name(dump, options)
    unfinished = f"{name}-unfinished"
    check_writable(args.out / f"{unfinished}.html")
    defences = options.defences_to_try()
    targets = gate.targets_of(args.gate, defences, bool(options.truth)) if args.gate else None

    def keep(findings: Findings) -> Path:
        findings.made = provenance(dump, options)
        return audit_page.write(findings, args.out, unfinished if findings.unfinished else name)

    findings = audit(dump, options, keep)
    page = keep(findings)
    if not findings.unfinished:
        audit_page.remove(args.out, unfinished)
    failed = gate.missed(targets, findings) if targets else []
    advice = [audit_page.conclusion(findings, findings.best.encoder), *audit_page.advice(findings)]
    if findings.unfinished:
        advice.append(audit_page.unfinished_line(findings))
    data = {"page": str(page), "verdict": findings.best.verdict, "advice": advice, "missed": failed}
    data |= asdict(findings)
    del data["inversions"]
    write_text(page.with_suffix(".json"), json.dumps(data, indent=2, default=str))  # for Dagster's check
    beside = page.with_suffix(".md").name
    texts = ", with the texts that were read" if findings.inversions else ""
    said = [*advice, f"the page{texts}: {page}, and {beside} beside it"]
    code = 3 if failed else 130 if findings.unfinished else 0
    if targets and targets.recall is not None and not findings.evidence:
        said.append("recall: not compared, since no attack works")
    said += ["targets met"] if targets and not failed else [f"target missed: {line}" for line in failed]
    return Answer(said, data, code)


def provenance(dump: Path, options: Options) -> dict[str, str]:
    """Return what a reader needs to file an audit, and to run it again."""
    versions = {"universal-geometry": metadata.version("universal-geometry"), "torch": torch.__version__}
    now = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    chosen = {name: plain(value) for name, value in vars(options).items()}
    return {"date": now, "dump": str(dump.resolve()), "aligner": arrays.ALIGNER} | versions | chosen


def plain(value: Any) -> str:
    """Return the value of an option as a user would write it."""
    if value in (None, ()):
        return "none"
    if isinstance(value, tuple):
        return ", ".join(f'"{name}"' if "," in name else name for name in value)
    return str(value)


def page_name(dump: Path, options: Options) -> str:
    """Return a name for the page, with a digest of the dump's path and of the options."""
    digest = hashlib.sha256(os.fsencode(f"{dump.resolve()}\0{options}")).hexdigest()[:6]
    readable = re.sub(r"[^\w.-]+", "_", dump.resolve().stem).encode()[:60].decode(errors="ignore")
    return f"{readable}-{digest}"
