"""translate: fit a map between the vectors of two files, apply it to a file, measure it on pairs."""

from argparse import Namespace
from dataclasses import asdict
from pathlib import Path

import torch

from pipelines.aligners.core.parts import Parts
from pipelines.aligners.core.translator import load, load_best, save, verdicts_in
from pipelines.corpora.core.files import located
from pipelines.corpora.sources.vectors import Stored
from pipelines.fitting import arrays
from pipelines.fitting.fits import write_verdicts
from pipelines.measures import shown, summary, translation
from pipelines.runtime.errors import BadInput
from pipelines.runtime.files import atomic, check_writable
from pipelines.tool import Answer
from pipelines.tool.files import check_output, cloud, lost_columns, two_files, write

BATCH = 8192  # vectors that are compared with each other, at most
PARTS = "parts.safetensors"  # in the folder of a map: for which source vectors it is right


def fit(args: Namespace) -> Answer:
    """Write a translator that `pipelines.load` reads, its verdict, and the parts that it is right for."""
    source, target = map(cloud, two_files(args, args.source, args.target))  # before the folder is made
    prepare_folder(args.out, args.seed)
    translator, verdict, parts = arrays.fit_parts(source, target, seed=args.seed, restarts=args.restarts)
    prepare_folder(args.out, args.seed)  # another command may have written one meanwhile
    write_verdicts(args.out, {})  # a kill leaves no old verdict beside a new map
    (args.out / PARTS).unlink(missing_ok=True)
    save(translator, args.out / f"seed-{args.seed}")
    write_verdicts(args.out, {args.seed: verdict})
    if parts:
        with atomic(args.out / PARTS) as draft:
            parts.save(draft)
    advice = "to try: more texts on both sides, more --restarts, or known pairs (`migrate --pairs`)"
    said = [f"{len(source)} vectors to {len(target)}: {args.out}", verdict.explained(advice)]
    return Answer(said, {"map": str(args.out), "verdict": asdict(verdict)})


def prepare_folder(folder: Path, seed: int) -> None:
    """Make the folder of a map. Raises BadInput if it cannot be written, or has a map of another seed."""
    check_writable(folder / f"seed-{seed}.safetensors")
    if others := sorted(path.stem for path in folder.glob("seed-*.json") if path.stem != f"seed-{seed}"):
        raise BadInput(f"{folder}: the map of {others[0]} is there: choose another folder")


def apply(args: Namespace) -> Answer:
    """Translate SOURCE. Of parquet to parquet or arrow, the other columns are kept.

    A column `aligned` tells for which rows the map is right, if `fit` found any. One of SOURCE is dropped.
    """
    source = Stored(located(args.source), args.column, args.collection)
    check_output(args.out, source, [args.source])
    seed, verdict = next(iter(verdicts_in(args.map).items()))
    parts = Parts.load(args.map / PARTS) if (args.map / PARTS).exists() else None
    rows = write(args.out, source, load(args.map / f"seed-{seed}"), parts)
    said = [f"{rows} vectors: {args.out}", *lost_columns(args.out, source)]
    label = verdict.get("label")
    if label not in (None, "aligned", "partial"):
        said.append(f"the verdict on the map is {label}: it may be wrong")
    return Answer(said, {"out": str(args.out), "rows": rows, "verdict": label})


def judge(args: Namespace) -> Answer:
    """Measure a map on true pairs. Raises BadInput for rows that are no pairs, or no vectors of this map."""
    source, target = map(cloud, two_files(args, args.source, args.target))
    if len(source) != len(target):
        sizes = f"{len(source)} vectors, and {args.target} {len(target)}"
        raise BadInput(f"{args.source}: {sizes}: rows must be pairs")
    translator = load_best(args.map)
    if (width := translator.source_dim) != source.shape[1]:
        raise BadInput(f"{args.source}: vectors of {source.shape[1]} dimensions; the map reads {width}")
    if (width := translator(source[:1]).shape[1]) != target.shape[1]:
        raise BadInput(f"{args.target}: vectors of {target.shape[1]} dimensions; the map gives {width}")
    rows = torch.arange(len(source))
    found = summary(translation.translated_scores(translator, source, target, rows, BATCH))
    lines = [f"{len(source)} pairs, ranked in batches of at most {BATCH}"]
    for m in shown(translation.MEASURES):
        lines.append(f"{m.title}: {found[m.name]:.{m.digits}f} ± {found[f'{m.name}_error']:.{m.digits}f}")
    return Answer(lines, {"pairs": len(source)} | found)
