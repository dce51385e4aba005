"""Words that this project does not use, and what to write instead."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_NOTIFY = "notify, report, return, say, distinguish"
_RECEIVE = "receive, notified, last seen"


@dataclass(frozen=True)
class Rule:
    """``pattern`` is searched in text whose identifiers are split into words (`words_of`)."""

    pattern: re.Pattern[str]
    instead: str


def _rule(pattern: str, instead: str) -> Rule:
    return Rule(re.compile(rf"\b(?:{pattern})\b"), instead)


RULES = (
    _rule("anew", "again"),
    _rule("mend(?:s|ed|ing)?", "repair, fix"),
    _rule("tells?|told|telling", _NOTIFY),
    _rule("hears?|heard|hearing", _RECEIVE),
    _rule("who(?:so)?ever", "anyone who, the caller"),
    _rule("reckon(?:s|ed|ing)?", "count, expect"),
    _rule("how-manieth", "number of the attempt"),
    _rule(r"as\s+yet", "so far"),
    _rule(r"knows?\s+(?:us|me|it|them|him)\s+not", "does not know"),
    _rule(r"seed\s+[1-9](?:\.\d+)*(?!\d)", "the argument itself: readers do not have that document"),
    _rule("handover", "handoff"),
    _rule("desks?", "allocator, dependencies"),
    _rule("ground", "dependencies"),
    _rule("quotas?", "allocation"),
    _rule(r"for\s+ever", "forever, for good"),
    _rule("besides?", "next to, in addition to, compared with"),
    _rule(r"of\s+before", "earlier, older, before it"),
    _rule("neighbours?|neighbouring|centres?|metres?|catalogues?|labelled", "the American spelling"),
    _rule("(?:recogni|synchroni|initiali|normali|seriali)s(?:e|es|ed|er|ing|ation)", "the American spelling"),
)

EXCEPTIONS = (
    # the method of Python's files
    r"\bfile\.tell\(\)",
    r"def tell\(self\) -> int",
    # the texts that Milvus clients compare
    r"\b(?:disk|memory) quota exceeded",
    r"quota exceeded\[reason=(?:disk quota exceeded)?",
    # the reference's names of properties
    r"disk(?:Protection\.disk)?Quota\.mb",
    # the name of etcd's option, and the error of the operating system
    r"quota-backend-bytes",
    r"over quota",
)
"""Patterns of text that is not searched, as few as possible, each with its reason."""

_ANY = re.compile("|".join(rule.pattern.pattern for rule in RULES))
"""One pass over a file, which finds nothing as a rule, instead of one for each rule."""

_NOT_SEARCHED = re.compile("|".join(EXCEPTIONS))
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_RELATIVE = re.compile(
    r"(?:\A\s*|[.?!]\s+|\n\s*\n\s*|\n\s*[-*] )((?:Who|Whose|Whom|What|Whatever|Of (?:an?|the|what|those))\b)"
    r"(?=[^.?!]*([.?!]|\Z))"
)
_RELATIVE_WORD = re.compile(r"\b(?:Who|Whose|Whom|What|Whatever|Of (?:an?|the|what|those))\b")
_COMMENT = re.compile(r"^\s*#\s+(Who|Whose|Whom|What|Whatever)\b(?!.*\?)", re.MULTILINE)
_CODE_OR_HEADING = re.compile(r"^```.*?^```|^#.*?$|^\|.*?$", re.MULTILINE | re.DOTALL)
_SENTENCE = "a sentence that names its subject first"


@dataclass(frozen=True)
class Finding:
    file: str
    line: int
    word: str
    instead: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.word!r}: write {self.instead}"


def words_of(text: str) -> str:
    """The text in lower case, its identifiers split: ``all_heard`` and ``isTold`` are two words each."""
    return _CAMEL.sub(" ", text).replace("_", " ").lower()


def findings_in(file: str, text: str) -> Iterator[Finding]:
    """What is wrong in a file. ``file`` is its path in the repository; the suffix says how it is read."""
    words = words_of(_NOT_SEARCHED.sub("", text))
    name = words_of(Path(file).name)
    for rule in RULES if _ANY.search(words) or _ANY.search(name) else ():
        for match in rule.pattern.finditer(words):
            yield Finding(file, _line(words, match.start()), match.group(), rule.instead)
        if found := rule.pattern.search(name):
            yield Finding(file, 0, found.group(), rule.instead)
    if not _RELATIVE_WORD.search(text):
        return
    if file.endswith(".py"):
        for first, docstring in _docstrings(text):
            for line, word in _relative_clauses(docstring):
                yield Finding(file, first + line, word, _SENTENCE)
        for match in _COMMENT.finditer(text):
            yield Finding(file, _line(text, match.start(1)), match[1], _SENTENCE)
    elif file.endswith(".md"):
        for line, word in _relative_clauses(_CODE_OR_HEADING.sub(_blank, text)):
            yield Finding(file, 1 + line, word, _SENTENCE)


def _relative_clauses(text: str) -> Iterator[tuple[int, str]]:
    """Line (from 0) and first word of each sentence, questions aside, that begins with a relative clause."""
    for match in _RELATIVE.finditer(text):
        if match[2] != "?":
            yield text.count("\n", 0, match.start(1)), match[1]


def _docstrings(source: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(source)):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            yield node.lineno, node.value.value


def _blank(match: re.Match[str]) -> str:
    return "\n" * match.group().count("\n")


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1
