"""python -m pipelines.pages: print the first table of translations measured so far.

`make repro` shows it early.
"""

import sys

from pipelines import freeze_gc
from pipelines.pages.tables.translation import translation_table
from pipelines.study import params

if __name__ == "__main__":
    freeze_gc()
    sys.stdout.reconfigure(errors="replace")  # pyright: ignore - a terminal may have no sign for ±
    first = "\n".join(translation_table(params.load())).split("\n### ")[1:2]
    rows = [line for line in "".join(first).splitlines() if not line.startswith("![")]
    print("\n".join(["", *rows]).rstrip(), end="\n\n")
