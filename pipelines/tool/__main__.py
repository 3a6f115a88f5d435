"""The command line: `universal-geometry COMMAND --help`.

Exit codes: 0 done, 1 an error while running, 2 bad input or a file that cannot be read or written, 3 a target
was missed (`audit --gate`) or a map is probably wrong (`migrate`), 130 Ctrl-C.
"""

import argparse
import json
import os
import sys
import threading
from collections.abc import Sequence
from contextlib import redirect_stdout
from importlib import import_module
from importlib.metadata import version
from io import StringIO
from pathlib import Path
from typing import Any

from pipelines import freeze_gc
from pipelines.runtime.errors import BadInput, cut
from pipelines.runtime.files import say
from pipelines.tool import Answer, names_in

CODES = "exit codes: 0 done, 1 error, 2 bad input, 3 a target missed or (migrate) a wrong map, 130 Ctrl-C"
STORES = "a file, or a folder of parquet, Chroma or LanceDB: docs/audit.md lists the formats"
OF_TWO = "; of two files: FIRST,SECOND"
SEEDS = 2**32
Parser = argparse.ArgumentParser


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code. Bad input is one line on stderr.

    A command's module is imported only when it runs: help needs no torch.
    argv: None: the arguments of this process, which ends at once if threads are left.
    """
    # None if they were closed
    sys.stdout, sys.stderr = sys.stdout or StringIO(), sys.stderr or StringIO()
    if argv is None:
        code = main(sys.argv[1:])
        if threading.active_count() > 1:  # after Ctrl-C a thread may be in torch: a usual exit would abort
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        return code
    parser = commands()
    args = parser.parse_args(argv)
    freeze_gc()
    try:
        answer = answer_of(args)
    except (BadInput, OSError) as error:
        said: object = error
        if isinstance(error, OSError) and error.filename:
            said = f"{error.filename}: {(error.strerror or '').lower()}"
        print(cut(f"{parser.prog} {args.command}: {said}", 1000), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"{parser.prog} {args.command}: stopped", file=sys.stderr)
        return 130
    said = "\n".join(answer.lines)
    if args.json:  # which has no NaN
        data = json.loads(json.dumps(answer.data, default=str), parse_constant=lambda _: None)
        said = json.dumps(data, indent=2)
    encoding = sys.stdout.encoding or "utf-8"
    try:
        say(said.encode(encoding, "backslashreplace").decode(encoding))
    except OSError as error:
        print(f"{parser.prog} {args.command}: the answer cannot be printed: {error}", file=sys.stderr)
        return 1
    return answer.code


def answer_of(args: argparse.Namespace) -> Answer:
    """Run the function of a command.

    Raises BadInput for a seed that no generator takes, and for a column or collection of files without any.
    """
    for name in ("seed", "restarts"):
        if (getattr(args, name, None) or 0) not in range(SEEDS):
            raise BadInput(f"--{name} {vars(args)[name]}: a number from 0 to {SEEDS - 1} is needed")
    if getattr(args, "column", None) or getattr(args, "collection", None):
        import_module("pipelines.tool.files").check_choices(args)
    module, function = args.run.split(".")
    with redirect_stdout(sys.stderr):  # notes of readers: stdout is the answer's
        return getattr(import_module(f"pipelines.tool.{module}"), function)(args)


def commands() -> Parser:
    """Return the parser. `run` is the function of a command, in a module of this package."""
    parser = Parser(
        "universal-geometry", description="What vectors give away, and how to move them.", epilog=CODES
    )
    parser.add_argument("--version", action="version", version=version("universal-geometry"))
    places = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(run: str, about: str, example: str) -> Parser:
        one = places.add_parser(
            example.partition(" ")[0],
            help=about,
            description=f"{about[0].upper()}{about[1:]}.",
            epilog=f"example: universal-geometry {example}\n{CODES}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        one.set_defaults(run=run)
        _json(one)
        return one

    example = "audit dump.parquet --texts my/texts --out report/audit"
    _audit(command("audit.run", "attack a dump of vectors, and write one page", example))
    about = "fit a map between two spaces without pairs, apply it, or measure it on pairs"
    _translate(command("translate.fit", about, "translate fit old.parquet new.parquet --out map"))
    about = "move an index into the space of a new encoder, and say what it cost"
    example = "migrate old.parquet new.parquet --pairs pairs.csv --out moved.parquet"
    _migrate(command("migrate.migrate", about, example))
    _identify(command("identify.run", "name the encoder of a dump", "identify dump.parquet"))
    validate = command("validate.run", "validate a study", "validate studies/own.yaml")
    validate.add_argument("study", type=Path, metavar="STUDY", help="a YAML file")
    ls = command("doctor.ls", "list encoders, aligners and studies", "ls encoders")
    ls.add_argument("what", nargs="?", choices=("encoders", "aligners", "studies"))
    command("doctor.run", "show what is installed, and how to install what is missing", "doctor")
    return parser


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in names_in(text) if name.strip())


def _json(parser: Parser, default: Any = False) -> None:
    parser.add_argument("--json", action="store_true", default=default, help="print one JSON object")


def _stored(parser: Parser, files: str = "") -> None:
    """Add the options that choose vectors of a file; `files`: how to choose them of two."""
    parser.add_argument("--column", help=f"the column, array or key that holds the vectors{files}")
    parser.add_argument("--collection", help=f"collection of Chroma, table of LanceDB or sqlite-vec{files}")


def _fits(parser: Parser) -> None:
    parser.add_argument("--seed", type=int, default=0, help="of the fits; another one makes other fits")
    parser.add_argument(
        "--restarts", type=int, default=2, help="fit again at most this often, until a fit is aligned"
    )


def _attacked(parser: Parser) -> None:
    add = parser.add_argument
    add("dump", metavar="DUMP", help=f"vectors: {STORES}")
    _stored(parser)
    add("--texts", help="your own texts, of the kind behind the dump; else docstrings")
    add(
        "--encoders",
        type=_names,
        help="names of `ls`, hub ids or folders, separated by commas; default: all installed "
        "(audit: also minilm+use)",
    )
    add("--limit", type=int, help="vectors of the dump, drawn at random: 20,000 by default")
    add("--known", type=int, help="texts of the attacker, drawn at random: 6,000 by default")
    quick = "give up after 30 candidate maps: may miss a leak"
    add("--quick", action="store_true", default=None, help=quick)  # None: not given
    add("--seed", type=int, help="of the fits and of what is drawn: 0 by default")
    add("--device", help="cpu, cuda, cuda:1; by default a GPU if there is one")


def _audit(parser: Parser) -> None:
    add = parser.add_argument
    _attacked(parser)
    add("--truth", help="the texts behind the dump: how much of it is read right")
    add(
        "--labels",
        type=_names,
        help="such as 'law,\"tax, customs\"'; by default 25 common topics",
    )
    add("--defences", type=_names, help="such as 'noise 0.1,binary'; '' tries none; by default ten are tried")
    add("--out", type=Path, default=Path("report/audit"), help="folder of the page: report/audit by default")
    add("--gate", type=Path, metavar="YAML", help="targets; exit code 3 if one is missed")


def _identify(parser: Parser) -> None:
    _attacked(parser)
    parser.add_argument(
        "--fit",
        action=argparse.BooleanOptionalAction,
        help="also fit a translator to each encoder; default: if no fingerprint matches and there are at "
        "least 1,000 vectors",
    )


def _translate(parser: Parser) -> None:
    actions = parser.add_subparsers(required=True, metavar="fit|apply|judge")
    fit = actions.add_parser("fit", help="fit a map from SOURCE to the space of TARGET, without a pair")
    fit.add_argument("source", metavar="SOURCE", help="vectors of the first encoder")
    fit.add_argument("target", metavar="TARGET", help="vectors of the second encoder, of other texts")
    fit.add_argument("--out", type=Path, required=True, metavar="MAP", help="folder that is written")
    _fits(fit)
    apply = actions.add_parser("apply", help="translate a file; other columns of parquet are kept")
    apply.add_argument("--out", type=Path, required=True, help="parquet, arrow or npy")
    judge = actions.add_parser("judge", help="measure on true pairs: row i of both files is one text")
    for action in (apply, judge):
        action.add_argument("map", type=Path, metavar="MAP", help="folder that `translate fit` wrote")
        action.add_argument("source", metavar="SOURCE", help="vectors of the map's first encoder")
    judge.add_argument("target", metavar="TARGET", help="vectors of its second encoder, of the same texts")
    for name, action in actions.choices.items():
        action.set_defaults(run=f"translate.{name}")
        _stored(action, "" if action is apply else OF_TWO)
        _json(action, argparse.SUPPRESS)  # else it would undo a --json before the action


def _migrate(parser: Parser) -> None:
    add = parser.add_argument
    add("old", metavar="OLD", help=f"the index, by the old encoder: {STORES}")
    add("new", metavar="NEW", help="vectors by the new encoder, of any texts of the same kind")
    add("--out", type=Path, required=True, metavar="FILE", help="parquet, arrow or npy")
    add("--pairs", metavar="K|FILE", help="the first K rows are of the same texts, or two columns of ids")
    add("--queries", metavar="FILE", help="vectors of judged queries, by the new encoder")
    add("--old-queries", metavar="FILE", help="the same queries by the old encoder")
    add("--qrels", metavar="TSV", help="query, document, grade, as in BEIR")
    _stored(parser, OF_TWO)
    _fits(parser)


if __name__ == "__main__":
    sys.exit(main())
