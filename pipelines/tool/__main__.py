"""The command line: `universal-geometry COMMAND --help`.

Exit codes: 0 done, 1 an error while running, 2 bad input, 3 a target was missed (`audit --gate`) or a map
is wrong (`migrate`), 130 Ctrl-C.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from pipelines import freeze_gc
from pipelines.runtime.errors import BadInput, cut
from pipelines.tool import Answer

CODES = "exit codes: 0 done, 1 error while running, 2 bad input, 3 a target missed or a map wrong, 130 Ctrl-C"
STORES = "a file, or a folder of parquet, Chroma or LanceDB: docs/audit.md lists the formats"


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code. Bad input is one line on stderr."""
    parser = commands()
    args = parser.parse_args(argv)
    freeze_gc()
    try:
        answer: Answer = args.run(args)
    except BadInput as error:
        print(cut(f"{parser.prog} {args.command}: {error}", 1000), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"{parser.prog} {args.command}: stopped; nothing was written", file=sys.stderr)
        return 130
    print(json.dumps(answer.data, indent=2, default=str) if args.json else "\n".join(answer.lines))
    return answer.code


def commands() -> argparse.ArgumentParser:
    """Return the parser. Each command imports what it runs only when it runs: help needs no torch."""
    parser = argparse.ArgumentParser(
        "universal-geometry", description="What vectors give away, and how to move them.", epilog=CODES
    )
    parser.add_argument("--version", action="version", version=_version())
    places = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, run: Callable, about: str, example: str) -> argparse.ArgumentParser:
        one = places.add_parser(
            name,
            help=about,
            description=f"{about[0].upper()}{about[1:]}.",
            epilog=f"example: universal-geometry {example}\n{CODES}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        one.set_defaults(run=run)
        one.add_argument("--json", action="store_true", help="print one JSON object")
        return one

    _audit(command("audit", _run_audit, "attack a dump of vectors, and write one page", "audit dump.parquet"))
    _translate(
        command(
            "translate",
            _run_translate,
            "fit a map between two spaces without pairs, apply it, or measure it on pairs",
            "translate fit old.parquet new.parquet --out map",
        )
    )
    _migrate(
        command(
            "migrate",
            _run_migrate,
            "move an index into the space of a new encoder, and say what it cost",
            "migrate old.parquet new.parquet --pairs pairs.csv --out moved.parquet",
        )
    )
    _identify(command("identify", _run_identify, "name the encoder of a dump", "identify dump.parquet"))
    studies = command("validate", _run_validate, "validate a study", "validate studies/own.yaml")
    studies.add_argument("study", type=Path, metavar="STUDY")
    lists = command("ls", _run_ls, "list encoders, aligners and studies", "ls encoders")
    lists.add_argument("what", nargs="?", choices=("encoders", "aligners", "studies"))
    command("doctor", _run_doctor, "say what is installed, and what mends what is missing", "doctor")
    return parser


def _version() -> str:
    from importlib.metadata import version

    return version("universal-geometry")


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _dump(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dump", metavar="DUMP", help=f"vectors: {STORES}")
    parser.add_argument("--column", help="the column, array or key that holds the vectors")
    parser.add_argument("--collection", help="of Chroma, or the table of LanceDB or sqlite-vec")


# ---------------------------------------------------------------- audit


def _attacked(parser: argparse.ArgumentParser) -> None:
    _dump(parser)
    parser.add_argument("--texts", help="your own texts, of the kind behind the dump; else docstrings")
    parser.add_argument(
        "--encoders", type=_names, help="minilm,use,wordllama by default; also hub ids and folders"
    )
    parser.add_argument("--limit", type=int, default=20_000, help="vectors of the dump, drawn at random")
    parser.add_argument("--known", type=int, default=6000, help="texts of the attacker, drawn at random")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--device", default="auto", help="cpu, cuda, cuda:1; auto takes a GPU if there is one"
    )


def _audit(parser: argparse.ArgumentParser) -> None:
    _attacked(parser)
    parser.add_argument("--truth", type=Path, help="the texts behind the dump: how much of it is read right")
    parser.add_argument("--labels", type=_names, help="topics to look for, separated by commas")
    parser.add_argument("--defences", type=_names, help="such as 'noise 0.1,binary'; '' tries none")
    parser.add_argument("--out", type=Path, default=Path("report/audit"), help="folder of the page")
    parser.add_argument("--gate", type=Path, metavar="YAML", help="targets; exit code 3 if one is missed")


def _run_audit(args: argparse.Namespace) -> Answer:
    from pipelines.tool import audit

    return audit.run(args)


# ---------------------------------------------------------------- identify


def _identify(parser: argparse.ArgumentParser) -> None:
    _attacked(parser)
    parser.add_argument(
        "--fit",
        action=argparse.BooleanOptionalAction,
        help="also fit a translator to each encoder: by default if the numbers name none of 1,000 vectors",
    )


def _run_identify(args: argparse.Namespace) -> Answer:
    from pipelines.tool import identify

    return identify.run(args)


# ---------------------------------------------------------------- translate


def _translate(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="fit|apply|judge")
    fit = actions.add_parser("fit", help="fit a map from SOURCE to the space of TARGET, without a pair")
    fit.add_argument("source", metavar="SOURCE", help="vectors of the first encoder")
    fit.add_argument("target", metavar="TARGET", help="vectors of the second encoder, of other texts")
    fit.add_argument("--out", type=Path, required=True, metavar="MAP", help="folder that is written")
    fit.add_argument("--seed", type=int, default=0)
    _restarts(fit)
    apply = actions.add_parser("apply", help="translate a file; other columns are kept")
    apply.add_argument("map", type=Path, metavar="MAP")
    apply.add_argument("source", metavar="SOURCE")
    apply.add_argument("--out", type=Path, required=True, help="parquet, arrow or npy")
    judge = actions.add_parser("judge", help="measure on true pairs: row i of both files is one text")
    judge.add_argument("map", type=Path, metavar="MAP")
    judge.add_argument("source", metavar="SOURCE")
    judge.add_argument("target", metavar="TARGET")
    for action in (fit, apply, judge):
        action.add_argument("--column", help="the column that holds the vectors")
        action.add_argument("--json", action="store_true", help="print one JSON object")


def _restarts(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--restarts", type=int, default=2, help="fits at most, after the first, while none is aligned"
    )


def _run_translate(args: argparse.Namespace) -> Answer:
    from pipelines.tool import translate

    return {"fit": translate.fit, "apply": translate.apply, "judge": translate.judge}[args.action](args)


# ---------------------------------------------------------------- migrate


def _migrate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("old", metavar="OLD", help=f"the index, by the old encoder: {STORES}")
    parser.add_argument(
        "new", metavar="NEW", help="vectors by the new encoder, of any texts of the same kind"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="parquet, arrow or npy")
    parser.add_argument(
        "--pairs", metavar="K|FILE", help="the first K rows are of the same texts, or two columns of ids"
    )
    parser.add_argument("--queries", metavar="FILE", help="vectors of judged queries, by the new encoder")
    parser.add_argument("--old-queries", metavar="FILE", help="the same queries by the old encoder")
    parser.add_argument("--qrels", metavar="TSV", help="query, document, grade, as in BEIR")
    parser.add_argument("--column", help="the column that holds the vectors")
    parser.add_argument("--seed", type=int, default=0)
    _restarts(parser)


def _run_migrate(args: argparse.Namespace) -> Answer:
    from pipelines.tool import migrate

    return migrate.migrate(args)


# ---------------------------------------------------------------- studies and the installation


def _run_validate(args: argparse.Namespace) -> Answer:
    from pipelines.study import params

    study = params.load(args.study)
    if Path("dvc.yaml").is_file():  # paths in a study are of its checkout
        params.check_files(study, args.study)
    rows = {table: len(rows) for table, rows in study if isinstance(rows, dict)}
    said = ", ".join(f"{count} {table}" for table, count in rows.items())
    return Answer([f"{study.study}: valid: {said}"], {"study": study.study, "rows": rows})


def _run_ls(args: argparse.Namespace) -> Answer:
    from pipelines.tool import doctor

    return doctor.ls(args.what)


def _run_doctor(args: argparse.Namespace) -> Answer:
    from pipelines.tool import doctor

    return doctor.run()


if __name__ == "__main__":
    sys.exit(main())
