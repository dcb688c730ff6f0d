"""What the small model of `transcript-store chat` answers to 40 ordinary questions: how many answers loop, how many are cut.

``python -m benchmarks.local_answers`` asks as the command does: each question in a conversation of its own, then all of them in
one, where a loop would be repeated by every later answer; then whether the model recalls what it was told. ``--sampling``
takes other settings than the model's own.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

from transcript_store.cli.chat.local import MODELS
from transcript_store.cli.chat.local.server import LocalServer, fetched

QUESTIONS = (
    "What is the capital of France?",
    "Who wrote Romeo and Juliet?",
    "What is 2 + 2?",
    "What is 15 times 4?",
    "Tell me a joke.",
    "Write a haiku about the sea.",
    "How do I boil an egg?",
    "What is the difference between a cat and a dog?",
    "Explain what a database is.",
    "What is Python used for?",
    "Write a Python function that adds two numbers.",
    "How do I list files in Linux?",
    "What is the largest planet in the solar system?",
    "Why is the sky blue?",
    "How far away is the moon?",
    "Who was Albert Einstein?",
    "What is photosynthesis?",
    "Give me three names for a puppy.",
    "What should I cook for dinner tonight?",
    'Translate "good morning" into Spanish.',
    "What day comes after Tuesday?",
    "Hello!",
    "How are you?",
    "What can you do?",
    "What is your name?",
    "Tell me a short story about a dragon.",
    "List five fruits.",
    "How many days are there in a leap year?",
    "What is the meaning of life?",
    "Summarize the plot of Cinderella.",
    "How do I fix a flat bicycle tire?",
    "What is a transcript?",
    "What does HTTP mean?",
    "Is a tomato a fruit or a vegetable?",
    "Give me some advice for a job interview.",
    "What is the boiling point of water?",
    "Write a short thank-you note to my teacher.",
    "What are the primary colours?",
    "How does a car engine work?",
    "Thank you, goodbye!",
)
TOLD = "The capital of Freedonia is Zubrowka.", "What is the capital of Freedonia?", "Zubrowka"
"""What a model is told, what it is asked then, and what it must say."""

ANSWER_TOKENS = 256
"""As many as the command lets it say at once."""


@dataclass(frozen=True)
class Answer:
    """An answer of the model, and whether it was cut at its length."""

    text: str
    is_cut: bool
    tokens: int

    @property
    def loops(self) -> bool:
        """Whether it says the same four words four times, or the same sentence or line three times."""
        words = re.findall(r"\w+|[^\w\s]", self.text.lower())
        fours = Counter(tuple(words[place : place + 4]) for place in range(len(words) - 3))
        pieces = Counter(piece.strip() for piece in re.split(r"(?<=[.!?])\s+|\n", self.text) if len(piece.strip()) > 8)
        return max(fours.values(), default=0) >= 4 or max(pieces.values(), default=0) >= 3


def answer(server: LocalServer, messages: list[dict[str, str]]) -> Answer:
    """Ask the server as the command does, with the settings that it was started with."""
    connection = HTTPConnection(urlsplit(server.base_url).netloc, timeout=600)
    body = json.dumps({"messages": messages, "max_tokens": ANSWER_TOKENS})
    headers = {"Authorization": f"Bearer {server.token}", "Content-Type": "application/json"}
    try:
        connection.request("POST", "/v1/chat/completions", body, headers)
        reply: dict[str, Any] = json.load(connection.getresponse())
    finally:
        connection.close()
    (choice,) = reply["choices"]
    tokens = reply["usage"]["completion_tokens"]
    return Answer(choice["message"]["content"], choice["finish_reason"] == "length", tokens)


def each_alone(server: LocalServer, questions: Iterable[str] = QUESTIONS) -> Iterator[Answer]:
    """The answers to questions that are asked one by one, each in a new conversation."""
    for question in questions:
        yield answer(server, [{"role": "user", "content": question}])


def in_one_conversation(server: LocalServer, questions: Iterable[str] = QUESTIONS) -> Iterator[Answer]:
    """The answers to questions that are asked one behind the other, everything before being told each time."""
    messages: list[dict[str, str]] = []
    for question in questions:
        messages.append({"role": "user", "content": question})
        given = answer(server, messages)
        messages.append({"role": "assistant", "content": given.text})
        yield given


def main() -> None:
    """Ask, and print what came of it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.local_answers", description=__doc__)
    parser.add_argument("--model", choices=MODELS, default=next(iter(MODELS)))
    parser.add_argument("--sampling", type=json.loads, help="other settings of llama.cpp, as JSON")
    parser.add_argument("--show", action="store_true", help="print each answer")
    options = parser.parse_args()
    model = MODELS[options.model]
    if options.sampling is not None:
        model = replace(model, sampling=options.sampling)
    with LocalServer(model, fetched(model, lambda _done, _total: None)) as server:
        for how, ask in (("each alone", each_alone), ("in one conversation", in_one_conversation)):
            answers = []
            for question, given in zip(QUESTIONS, ask(server), strict=True):
                answers.append(given)
                if options.show:
                    marks = " LOOPS" * given.loops + " CUT" * given.is_cut
                    print(f"> {question}{marks}\n{given.text}\n", flush=True)
            loops, cut = sum(each.loops for each in answers), sum(each.is_cut for each in answers)
            print(
                f"{how}: {loops} loop, {cut} cut at {ANSWER_TOKENS}, {sum(a.tokens for a in answers)} tokens",
                flush=True,
            )
        *_, recalled = in_one_conversation(server, TOLD[:2])
        print(f"{'recalled' if TOLD[2] in recalled.text else 'NOT recalled'}: {recalled.text}")


if __name__ == "__main__":
    main()
