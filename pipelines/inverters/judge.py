"""An optional judge: does a language model, shown both texts, say that the guess leaks anything about the original?

Any OpenAI-compatible chat endpoint. The question is vec2vec's (section 5.2), in our words. Answers are cached by what
was asked, so that a second run asks nothing. Off unless a study names an endpoint; the key comes from the environment.
The judge sees the texts: do not point it at a third party when they are private.
"""

from __future__ import annotations

import hashlib
import json
import os
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pipelines.runtime import files
from pipelines.runtime.errors import BadInput
from pipelines.runtime.settings import check_settings

QUESTION = """You compare an original message with an attempt to reconstruct it from its embedding.
Decide whether the attempt gives away any specific information of the original: a person, an organisation, a place,
a date, a number, a condition, an order, an event, or what the message is about in particular.
Words that would fit almost any message of this kind give nothing away. Answer with one word, yes or no.

Original:
{text}

Attempt:
{guess}
"""


@dataclass(frozen=True)
class Settings:
    """Where the judge is."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    endpoint: str  # such as http://localhost:8000/v1
    model: str
    key_variable: str = "OPENAI_API_KEY"  # of the environment; may be unset for a local server
    seconds: float = 60.0

    def __post_init__(self) -> None:
        check_settings(self, {}, {"seconds": "(0, inf)"})


def judge(texts: Sequence[str], guesses: Sequence[str], settings: Settings, cache: Path) -> list[bool]:
    """Whether each guess leaks something of its text.

    Raises BadInput when the endpoint is not there or says neither yes nor no.
    """
    return [
        _ask(QUESTION.format(text=t, guess=g), settings, cache) for t, g in zip(texts, guesses, strict=True)
    ]


def _ask(prompt: str, s: Settings, cache: Path) -> bool:
    key = hashlib.sha256(json.dumps([s.endpoint, s.model, prompt]).encode()).hexdigest()
    kept = cache / f"{key}.json"
    if kept.exists():
        return json.loads(kept.read_text())["leaks"]
    body = {
        "model": s.model,
        "temperature": 0,
        "max_tokens": 4,
        "messages": [{"role": "user", "content": prompt}],
    }
    headers = {"Content-Type": "application/json"}
    if secret := os.environ.get(s.key_variable):
        headers["Authorization"] = f"Bearer {secret}"
    url = f"{s.endpoint.rstrip('/')}/chat/completions"
    if not url.startswith(("http://", "https://")):
        raise BadInput(f"judge: {s.endpoint}: an http(s) address was expected")
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=s.seconds) as response:
            answer = str(json.load(response)["choices"][0]["message"]["content"]).strip().casefold()
    except (urllib.error.URLError, TimeoutError, KeyError, IndexError, TypeError, ValueError) as error:
        raise BadInput(f"judge: {s.endpoint}: no answer: {error}") from None
    if not answer.startswith(("yes", "no")):
        raise BadInput(f"judge: {s.endpoint}: neither yes nor no: {answer[:40]!r}")
    leaks = answer.startswith("yes")
    with files.atomic(kept) as draft:
        draft.write_text(json.dumps({"leaks": leaks, "model": s.model}))
    return leaks
