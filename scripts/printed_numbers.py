"""Compare the numbers in README and docs with the results they come from.

    python -m scripts.printed_numbers          # print each number that differs
    python -m scripts.printed_numbers write    # write docs/numbers/<study>.json of the active study

A comment before a table or paragraph names its decimal numbers, in reading order, in such a file:

    <!-- numbers tour: evaluate.{wasserstein,identity}.{top1,foscttm} -->

`~` stands for a space in a name. A comment may name several studies: `tour: ... small: ...`.
"""

import json
import re
import sys
from itertools import product
from pathlib import Path

import numpy as np
import polars as pl

from pipelines.runtime.store import flat
from pipelines.study import params

ROOT = Path(__file__).parents[1]
NUMBERS, RESULTS = Path("docs/numbers"), Path("results")
_BLOCK = re.compile(r"<!-- numbers (\S+: [^>]+) -->\n+(.+?)(?:\n\n|\Z)", re.S)
_DECIMAL = re.compile(r"(?<![\w.])-?\d*\.\d+(?![\w.])")


def main() -> None:
    """Write the results of the active study, or check all pages and exit with 1 if a number differs."""
    if sys.argv[1:] == ["write"]:
        study = params.load(ROOT / "params.yaml")
        rows = {stage.replace("@", ".") for stage in study.stages()}
        found = collected(ROOT / RESULTS)
        kept = {key: value for key, value in found.items() if ".".join(key.split(".")[:2]) in rows}
        file = ROOT / NUMBERS / f"{study.study}.json"
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps(kept, indent=1) + "\n", "utf-8")
        return
    wrong = [line for page in pages(ROOT) for line in differences(page, ROOT / NUMBERS)]
    for line in wrong:
        print(line)
    sys.exit(bool(wrong))


def pages(root: Path) -> list[Path]:
    """Return README and the pages of docs."""
    return [root / "README.md", *sorted((root / "docs").rglob("*.md"))]


def collected(results: Path) -> dict[str, float]:
    """Return `<verb>.<row>.<key>` -> number of all results.

    Of `evaluate`, `<measure>_spread` is the standard deviation over seeds or, for one, the standard error.
    """
    found = {}
    for file in sorted(results.glob("*/**/*.json")):
        verb, _, row = file.relative_to(results).with_suffix("").as_posix().partition("/")
        found |= numbers(json.loads(file.read_text("utf-8")), f"{verb}.{row}")
    for file in sorted((results / "evaluate").rglob("seeds.csv")):
        row, seeds = file.parent.relative_to(results / "evaluate").as_posix(), pl.read_csv(file)
        for name in (column for column in seeds.columns if f"{column}_error" in seeds.columns):
            spread = np.std(seeds[name].to_numpy(), ddof=1) if len(seeds) > 1 else seeds[f"{name}_error"][0]
            found[f"evaluate.{row}.{name}_spread"] = round(float(spread), 6)
            by_seed = zip(seeds["seed"], seeds[name], strict=True)
            found |= {f"evaluate.{row}.seed-{seed}.{name}": value for seed, value in by_seed}
    for file in sorted((results / "evaluate_image_text").rglob("seeds.csv")):
        for values in pl.read_csv(file).iter_rows(named=True):
            seed = values.pop("seed")
            found |= numbers(values, f"evaluate_image_text.{file.parent.name}.seed-{seed}")
    return found


def numbers(tree: object, name: str) -> dict[str, float]:
    """Return `name.key.key` -> number of a tree of mappings."""
    values = flat(tree, ".", name).items()
    return {key.replace("by seed.", "seed-"): n for key, n in values if isinstance(n, (int, float))}


def differences(page: Path, folder: Path) -> list[str]:
    """Return a line for each number that differs from its result or has no result, and for each comment that
    cannot be read.
    """
    text, lines = page.read_text("utf-8"), []
    blocks = _BLOCK.findall(text)
    if unread := text.count("<!-- numbers") - len(blocks):
        lines.append(f"{page}: {unread} comments are not of the form <!-- numbers study: names -->")
    for pattern, block in blocks:
        names, shown = expanded(pattern), _DECIMAL.findall(block)
        files = {study: folder / f"{study}.json" for study, _ in names}
        if missing := [file.name for file in files.values() if not file.exists()]:
            lines.append(f"{page}: there is no {missing[0]}")
            continue
        results = {study: json.loads(file.read_text("utf-8")) for study, file in files.items()}
        if len(names) != len(shown):
            lines.append(f"{page}: {pattern}: {len(names)} names for {len(shown)} numbers")
        for (study, name), number in zip(names, shown, strict=False):
            digits, result = len(number.partition(".")[2]), results[study].get(name)
            if result is None or f"{float(number):.{digits}f}" != f"{result:.{digits}f}":
                found = "not there" if result is None else result
                lines.append(f"{page}: {study} {name}: {number} is {found}")
    return lines


def expanded(pattern: str) -> list[tuple[str, str]]:
    """Return (study, name) for each name of a pattern: `study:` stands before its names, `{a,b}` for several
    parts, `~` for a space.
    """
    names, study = [], ""
    for word in pattern.split():
        if word.endswith(":"):
            study = word[:-1]
            continue
        parts = [part.split(",") for part in re.split(r"[{}]", word)]
        parts[::2] = [[",".join(part)] for part in parts[::2]]
        names += [(study, "".join(chosen).replace("~", " ")) for chosen in product(*parts)]
    return names


if __name__ == "__main__":
    main()
