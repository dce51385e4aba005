"""Parses text to a syntax tree, with a grammar (``grammar.lark``) and lark's LALR parser.

A parser library was chosen over a hand-written parser because the grammar *is* the documentation of the
language, and because speed does not matter here: a typical filter takes 100 µs once, and then its plan is
cached. Primary keys listed by the ten thousand would be slow, so a list of plain literals is one token, or
one for each sixteen thousand of them (10,000 integers: 2 ms; as separate tokens they took 147 ms).

LALR parsing does not recurse, and an ``and`` or ``or`` chain is one node, however long. The resulting tree is
bounded in depth, so code that walks it may recurse.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import lark
from lark import Token

from elanus.core import limits
from elanus.core.json_keys import PLACE_DIGITS_MAX
from elanus.core.quoted import unquoted
from elanus.core.schema import Scalar
from elanus.expr import literals, syntax
from elanus.expr.long_list import LongLiterals
from elanus.expr.misread import misplaced, unreadable
from elanus.expr.source import Source, shorten


def parse(source: Source) -> syntax.Node:
    """The syntax tree of a filter that is not blank. Raises `InvalidFilter`."""
    _check_length(source)
    _check_brackets(source)
    try:
        tree: object = parser().parse(source.text)
    except lark.UnexpectedToken as problem:
        raise misplaced(source, problem) from None
    except lark.UnexpectedCharacters as problem:
        raise unreadable(source, problem) from None
    except _BadLiteral as problem:
        raise source.error(f"invalid literal: {problem.text}", problem.position, problem.remedy) from None
    assert isinstance(tree, syntax.Node)
    _check_depth(source, tree)
    return tree


_BRACKETS = re.compile(r"""[()\[\]]|"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|'(?:[^'\\]|\\.)*+(?:'|\\?\Z)""", re.DOTALL)
"""Brackets, and strings, so that brackets in them are passed over. One that is not closed ends with the text:
otherwise each quote in it would be a beginning that is read to the end."""


@cache
def parser() -> lark.Lark:
    """Return the parser, which is created on first use, in 40 ms.

    It keeps no state between calls, so threads may share it. One thread creates it and the others wait: lark
    evaluates literals of the grammar with Python's ``ast``, whose recursion counter all threads share. Those
    that did so at the same time could get "AST constructor recursion depth mismatch".
    """
    with _creation:
        return _created()


_creation = threading.Lock()


@cache
def _created() -> lark.Lark:
    return lark.Lark.open_from_package(
        __package__, "grammar.lark", parser="lalr", maybe_placeholders=False, transformer=_Builder()
    )


def _check_length(source: Source) -> None:
    """Check the length of the text. Lists of plain literals cost a hundredth of other text: they have a limit
    of their own."""
    length = len(source.text)
    if length > limits.FILTER_LENGTH_MAX_CHARS:
        what = f"the expression is longer than {limits.FILTER_LENGTH_MAX_CHARS} characters"
        raise source.error(what, limits.FILTER_LENGTH_MAX_CHARS, "split the request")
    if length <= limits.FILTER_UNLISTED_MAX_CHARS:
        return
    listed = 0
    for begin, end in _literal_lists(source.text):
        if begin - listed > limits.FILTER_UNLISTED_MAX_CHARS:
            break
        listed += end - begin
    if length - listed > limits.FILTER_UNLISTED_MAX_CHARS:
        raise source.error(
            f"the expression has more than {limits.FILTER_UNLISTED_MAX_CHARS} characters outside of lists of "
            "plain literals",
            0,
            "split the request, or look whether a list holds something else than numbers or strings",
        )


def _literal_lists(text: str) -> Iterator[tuple[int, int]]:
    """Yield where lists of plain literals begin and end. Whole lists are looked for: any other is parsed
    literal by literal."""
    short, part, rest = map(_terminal, ("LITERALS", "LITERALS_PART", "LITERALS_END"))
    at = text.find("[")
    while at >= 0:
        found = short.match(text, at)
        if found is None:
            begin = _BLANKS.match(text, at + 1)
            while begin is not None and (more := part.match(text, begin.end())):
                begin = found = more
            if found is not None:
                found = _CLOSING.match(text, (rest.match(text, found.end()) or found).end())
        if found is not None:
            yield at, found.end()
        at = text.find("[", at + 1 if found is None else found.end())


_BLANKS, _CLOSING = re.compile(r"\s*+"), re.compile(r"\s*+\]")


@cache
def _terminal(name: str) -> re.Pattern[str]:
    return re.compile(parser().get_terminal(name).pattern.to_regexp())


def _check_brackets(source: Source) -> None:
    """Refuse a text of thousands of brackets before the time is spent to parse them."""
    if source.text.count("(") + source.text.count("[") <= limits.FILTER_BRACKETS_MAX:
        return
    opened = 0
    for found in _BRACKETS.finditer(source.text):
        opened += {"(": 1, "[": 1, ")": -1, "]": -1}.get(found.group(), 0)
        if opened > limits.FILTER_BRACKETS_MAX:
            what = f"the expression is nested deeper than {limits.FILTER_BRACKETS_MAX} brackets"
            raise source.error(what, found.start(), "leave out brackets that change nothing")


def _check_depth(source: Source, tree: syntax.Node) -> None:
    level, depth = [tree], 0
    while level:
        depth += 1
        if depth > limits.FILTER_DEPTH_MAX:
            what = f"the expression is nested deeper than {limits.FILTER_DEPTH_MAX} levels"
            raise source.error(what, level[0].start, "write it flatter, or as several requests")
        level = [child for node in level for child in node.children()]


class _BadLiteral(Exception):
    """A token that has the form of a literal but no value."""

    def __init__(self, token: Token, remedy: str) -> None:
        super().__init__(str(token))
        self.text = shorten(token)
        self.position = _start(token)
        self.remedy = remedy


def _start(span: Token | syntax.Node) -> int:
    start = span.start_pos if isinstance(span, Token) else span.start
    assert start is not None  # lark knows the position of every token it cuts from a text
    return start


def _end(span: Token | syntax.Node) -> int:
    end = span.end_pos if isinstance(span, Token) else span.end
    assert end is not None
    return end


@lark.v_args(inline=True)
class _Builder(lark.Transformer[Token, syntax.Node]):
    """Builds the syntax tree: one method per alternative of the grammar."""

    def integer(self, token: Token) -> syntax.Node:
        try:
            return syntax.Literal(_start(token), _end(token), literals.integer(token))
        except ValueError:
            is_octal = token.startswith("0")
            remedy = "a leading 0 makes a number octal: leave it out" if is_octal else "integers have 64 bits"
            raise _BadLiteral(token, remedy) from None

    def floating(self, token: Token) -> syntax.Node:
        return syntax.Literal(_start(token), _end(token), literals.floating(token))

    def boolean(self, token: Token) -> syntax.Node:
        return syntax.Literal(_start(token), _end(token), literals.boolean(token))

    def string(self, token: Token) -> syntax.Node:
        return syntax.Literal(_start(token), _end(token), _string(token))

    def raw_string(self, token: Token) -> syntax.Node:
        return syntax.Literal(_start(token), _end(token), token[2:-1])

    def literal_list(self, token: Token) -> syntax.Node:
        return syntax.LiteralList(_start(token), _end(token), _decoded(token, str(token)))

    def long_list(self, opening: Token, *rest: Token) -> syntax.Node:
        values = LongLiterals(map(_values, rest[:-1]))
        return syntax.LongList(_start(opening), _end(rest[-1]), values)

    def listing(self, opening: Token, *rest: syntax.Node | Token) -> syntax.Node:
        parts = [node for part in rest if _is_part(part) for node in _elements(_token(part))]
        return syntax.Listing(_start(opening), _end(rest[-1]), (*parts, *_nodes(rest)))

    def template(self, token: Token) -> syntax.Node:
        return syntax.Template(_start(token), _end(token), token[1:-1].strip())

    def iso(self, word: Token, text: Token) -> syntax.Node:
        return syntax.Iso(_start(word), _end(text), _string(text))

    def interval(self, word: Token, text: Token) -> syntax.Node:
        return syntax.Interval(_start(word), _end(text), _string(text))

    def name(self, token: Token) -> syntax.Node:
        return syntax.Name(_start(token), _end(token), str(token), ())

    def element(self, token: Token) -> syntax.Node:
        return syntax.Element(_start(token), _end(token), token[2:-1].strip())

    def path(self, name: Token, *steps: str | int | Token) -> syntax.Node:
        # Each step is followed by its closing bracket, which marks where the path ends.
        path = tuple(step for step in steps if not isinstance(step, Token))
        return syntax.Name(_start(name), _end(_token(steps[-1])), str(name), path)

    def struct_path(self, name: Token, *steps: str | int | Token) -> syntax.Node:
        *above, word, closing = steps
        path = (*(step for step in above if not isinstance(step, Token)), str(word))
        return syntax.Name(_start(name), _end(_token(closing)), str(name), path, _start(_token(word)))

    def index(self, token: Token) -> int:
        if not token.isdecimal():
            raise _BadLiteral(token, "an index is written in decimal digits")
        if len(token) > PLACE_DIGITS_MAX:
            raise _BadLiteral(token, "no array is that long; a key of an object is in quotes")
        return int(token)

    def key(self, token: Token) -> str:
        return _string(token)

    def raw_key(self, token: Token) -> str:
        return token[2:-1]

    def call(self, name: Token, _opening: Token, *rest: syntax.Node | Token) -> syntax.Node:
        return syntax.Call(_start(name), _end(rest[-1]), str(name), _nodes(rest))

    def option(self, name: Token, value: syntax.Node) -> syntax.Node:
        return syntax.Option(_start(name), value.end, name[:-1].strip(), value)

    def parentheses(self, opening: Token, inner: syntax.Node, closing: Token) -> syntax.Node:
        return replace(inner, start=_start(opening), end=_end(closing))

    def sign(self, operator: Token, operand: syntax.Node) -> syntax.Node:
        return syntax.Sign(_start(operator), operand.end, str(operator), operand)

    def arithmetic(self, left: syntax.Node, operator: Token, right: syntax.Node) -> syntax.Node:
        return syntax.Arithmetic(left.start, right.end, str(operator), left, right)

    def comparison(self, left: syntax.Node, operator: Token, right: syntax.Node) -> syntax.Node:
        return syntax.Comparison(left.start, right.end, str(operator), left, right)

    def chain(
        self, first: syntax.Node, one: Token, middle: syntax.Node, two: Token, last: syntax.Node
    ) -> syntax.Node:
        return syntax.Chain(first.start, last.end, (str(one), str(two)), (first, middle, last))

    def member(self, item: syntax.Node, values: syntax.Node) -> syntax.Node:
        return syntax.Member(item.start, values.end, item, values, negated=False)

    def no_member(self, item: syntax.Node, _not: Token, values: syntax.Node) -> syntax.Node:
        return syntax.Member(item.start, values.end, item, values, negated=True)

    def like(self, item: syntax.Node, pattern: syntax.Node) -> syntax.Node:
        return syntax.Like(item.start, pattern.end, item, pattern)

    def regex(self, item: syntax.Node, operator: Token, pattern: syntax.Node) -> syntax.Node:
        return syntax.Regex(item.start, pattern.end, item, pattern, negated=operator == "!~")

    def null(self, item: syntax.Node, word: Token) -> syntax.Node:
        return syntax.Null(item.start, _end(word), item, negated=False)

    def no_null(self, item: syntax.Node, word: Token) -> syntax.Node:
        return syntax.Null(item.start, _end(word), item, negated=True)

    def exists(self, word: Token, item: syntax.Node) -> syntax.Node:
        return syntax.Exists(_start(word), item.end, item)

    def negation(self, word: Token, operand: syntax.Node) -> syntax.Node:
        return syntax.Negation(_start(word), operand.end, operand)

    def all_of(self, *operands: syntax.Node) -> syntax.Node:
        return _logical("and", operands)

    def any_of(self, *operands: syntax.Node) -> syntax.Node:
        return _logical("or", operands)


def _logical(operator: str, operands: tuple[syntax.Node, ...]) -> syntax.Node:
    """Flatten ``a or (b or (c or ..))``, which programs write, to ``a or b or c or ..``."""
    flat: list[syntax.Node] = []
    for operand in operands:
        if isinstance(operand, syntax.Logical) and operand.operator == operator:
            flat += operand.operands
        else:
            flat.append(operand)
    return syntax.Logical(operands[0].start, operands[-1].end, operator, tuple(flat))


def _nodes(parts: tuple[syntax.Node | Token, ...]) -> tuple[syntax.Node, ...]:
    return tuple(part for part in parts if isinstance(part, syntax.Node))


def _token(part: object) -> Token:
    assert isinstance(part, Token)
    return part


def _is_part(part: syntax.Node | Token) -> bool:
    return isinstance(part, Token) and part.type == "LITERALS_PART"


def _values(part: Token) -> list[Scalar]:
    """The literals of a part of a long list."""
    return _decoded(part, f"[{part.rstrip().removesuffix(',')}]")


def _elements(part: Token) -> Iterator[syntax.Node]:
    """The literals of a part of a long list that holds something else as well."""
    _values(part)  # which are right
    for start, end, value in literals.elements(part):
        yield syntax.Literal(_start(part) + start, _start(part) + end, value)


def _decoded(token: Token, text: str) -> list[Scalar]:
    try:
        return literals.literal_list(text)
    except ValueError:
        raise _BadLiteral(token, "a number or an escape has no value, or a comma no neighbor") from None


def _string(token: Token) -> str:
    try:
        return unquoted(token)
    except ValueError:
        raise _BadLiteral(token, "it holds half a surrogate pair: write both halves") from None
