"""fetch: an encoder's weights, from wherever they come, checked -> data/encoders/<encoder>/, a sentence-transformers folder."""

from __future__ import annotations

import shutil
from pathlib import Path

from pipelines import encoders
from pipelines.runtime import stage, store, track
from pipelines.study import Encoder, params


def fetch(name: str, row: Encoder, study: params.Study, run: track.Run) -> None:
    """Copy or download into a folder beside, then rename: a killed download leaves no half of an encoder."""
    folder = store.encoder_path(name)
    with store.work("fetch", name, row) as draft:
        shutil.rmtree(draft)
        store.intact(Path(row.path))  # one that `finetune` made
        encoders.fetch(row, draft / "encoder")
        store.move_into(draft / "encoder", folder)
    run.log({"bytes": sum(f.stat().st_size for f in folder.rglob("*") if f.is_file())})


if __name__ == "__main__":
    stage.main(fetch)
