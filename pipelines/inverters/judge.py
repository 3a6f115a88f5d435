"""An optional judge: a language model that sees both texts, and says whether the guess leaks anything of the
original.

It may be any OpenAI-compatible chat endpoint. The question is vec2vec's (section 5.2) in our words. Answers
are cached by question. An answer without yes or no counts as no. A question is sent again after a network
error or an overload. There is no judge unless a study names an endpoint. Its key is read from the
environment. The judge sees the texts: do not send private ones to a third party.
"""

import hashlib
import json
import os
import re
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError

from pipelines.runtime import files
from pipelines.runtime.errors import BadInput
from pipelines.runtime.progress import progress

KEY = "OPENAI_API_KEY"  # in the environment; a local server may need none
SECONDS = 60.0
TRIES, WAIT = 3, 2.0  # times that a question is sent; seconds between two of them
QUESTION = """You compare an original message with an attempt to reconstruct it from its embedding.
Decide whether the attempt gives away any specific information of the original: a person, an organisation,
a place, a date, a number, a condition, an order, an event, or what the message is about in particular.
Words that would fit almost any message of this kind give nothing away. Answer with one word, yes or no.

Original:
{text}

Attempt:
{guess}
"""


@dataclass(frozen=True)
class Settings:
    """Where the judge is. An answer without yes or no counts as no."""

    endpoint: str  # such as http://localhost:8000/v1
    model: str  # the language model's name at the endpoint

    def __post_init__(self) -> None:
        if not self.endpoint.startswith(("http://", "https://")):
            raise ValueError(f"endpoint: {self.endpoint}: an http(s) address was expected")


def judge(texts: Sequence[str], guesses: Sequence[str], settings: Settings, cache: Path) -> list[bool]:
    """Return whether each guess leaks something of its text. An answer without yes or no counts as no.

    Raises BadInput if the endpoint does not answer.
    """
    questions = [QUESTION.format(text=t, guess=g) for t, g in zip(texts, guesses, strict=True)]
    asked = progress(questions, what="judge", unit="questions")
    return [_leaks(question, settings, cache) for question in asked]


def _leaks(question: str, s: Settings, cache: Path) -> bool:
    """Return the cached answer, else ask."""
    key = hashlib.sha256(json.dumps([s.endpoint, s.model, question]).encode()).hexdigest()
    kept = cache / f"{key}.json"
    if kept.exists():
        return json.loads(kept.read_bytes())["leaks"]
    said = re.findall(r"\b(?:yes|no)\b", _answer(question, s).casefold())  # as in "**Yes**", "Answer: no"
    leaks = said[:1] == ["yes"]
    files.write_text(kept, json.dumps({"leaks": leaks, "model": s.model}))
    return leaks


def _answer(question: str, s: Settings, tries: int = TRIES) -> str:
    """Return the endpoint's answer to one question."""
    message = {"role": "user", "content": question}
    body = {"model": s.model, "temperature": 0, "max_tokens": 4, "messages": [message]}
    headers = {"Content-Type": "application/json"}
    if secret := os.environ.get(KEY, "").strip():
        headers["Authorization"] = f"Bearer {secret}"
    url = f"{s.endpoint.rstrip('/')}/chat/completions"
    try:
        request = urllib.request.Request(url, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=SECONDS) as response:
            answer = json.load(response)["choices"][0]["message"]["content"]
        return answer.strip()
    except (OSError, HTTPException) as error:
        refused = isinstance(error, HTTPError) and error.code != 429 and error.code < 500
        if refused or tries == 1:
            raise BadInput(f"judge: {s.endpoint}: no answer: {error}") from None
    except (LookupError, TypeError, ValueError, AttributeError) as error:  # whose text may hold the key
        raise BadInput(f"judge: {s.endpoint}: no answer: {type(error).__name__}") from None
    time.sleep(WAIT)
    return _answer(question, s, tries - 1)
