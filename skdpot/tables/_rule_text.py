"""Rules as text, read by a small grammar; nothing in them is executed."""

import ast
import re
from collections.abc import Mapping
from typing import Any

from skdpot.tables._column import NUMERIC, ORDINAL, Column
from skdpot.tables._declarations import LARGEST_BOUND
from skdpot.tables._rule_terms import (
    COMPARISONS,
    MIRRORED,
    Comparison,
    Condition,
    IsMissing,
    Joined,
    Number,
    OneOf,
    Operation,
    Reference,
    SameLabel,
    Term,
    number_labels,
)

GRAMMAR = (
    "Rules compare columns, numbers and quoted labels or dates by <, <=, >, >=, ==, != and in, "
    "with +, - and *, and, or, not, 'is missing', and one ->, as in 'end >= start' and "
    "'age < 16 -> job is missing'. Names that are not identifiers are in `backquotes`"
)
# Longer texts could keep Python's parser busy.
_LONGEST = 1000
# Quoted text, a name in backquotes, an arrow, or a single character.
_TOKENS = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`|->|.""", re.DOTALL)
_SIGNS: dict[type, str] = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
}  # fmt: skip
_OPERATIONS: dict[type, str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*"}
_MISSING = "missing"
# Operators of other languages, and typing errors, outside of quotes.
_MISTAKEN = {"=": "==", "=>": ">=", "=<": "<=", "<>": "!="}
_MISTAKES = re.compile(r"(?<![<>=!])(?:=[<>]?|<>)(?!=)")
_NO_OPERATIONS: dict[type, str] = {
    ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**", ast.MatMult: "@",
}  # fmt: skip


def read_rule(text: Any, columns: Mapping[Any, Column]) -> Condition:
    """Return the condition of a text, or raise.

    The text is public, and may use only these columns.

    Examples
    --------
    >>> from skdpot.tables import read_schema
    >>> from skdpot.tables._rule_text import read_rule
    >>> columns = {column.name: column for column in read_schema({"start": (0, 9)}).columns}
    >>> read_rule("start <= 5", columns).sign
    '<='
    """
    if not isinstance(text, str) or len(text) > _LONGEST:
        raise ValueError(
            f"a rule is a text of at most {_LONGEST} characters, got "
            f"{'a longer one' if isinstance(text, str) else type(text).__name__}. {GRAMMAR}."
        )
    reader = _Reader(text, columns)
    parts = [""]
    for token in _TOKENS.findall(text):
        if token == "->":
            parts.append("")
        else:
            parts[-1] += reader.placeholder(token) if token.startswith("`") else token
    if len(parts) > 2:
        raise reader.error("it has more than one ->")
    try:
        *condition, conclusion = [reader.condition(reader.parse(part)) for part in parts]
    except RecursionError:
        conclusion = None
    if conclusion is None:
        raise reader.error("it is nested too deeply")
    return Joined((condition[0].negated(), conclusion), all=False) if condition else conclusion


class _Reader:
    """Converts the syntax trees of a rule's text to conditions."""

    def __init__(self, text: str, columns: Mapping[Any, Column]) -> None:
        self._text = text
        self._columns = {str(name): column for name, column in columns.items()}
        self._quoted: dict[str, str] = {}

    def error(self, why: str) -> ValueError:
        return ValueError(f"the rule {self._text!r} cannot be read: {why}. {GRAMMAR}.")

    def placeholder(self, name: str) -> str:
        """Return a placeholder word for a name in backquotes."""
        word = f"_column_{len(self._quoted)}_"
        self._quoted[word] = name[1:-1]
        return word

    def parse(self, part: str) -> ast.expr:
        try:
            return ast.parse(part.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            pass
        unquoted = "".join(token for token in _TOKENS.findall(part) if token[0] not in "'\"")
        mistake = _MISTAKES.search(unquoted)
        if mistake is not None:
            raise self.error(f"write {_MISTAKEN[mistake[0]]} instead of {mistake[0]}")
        raise self.error("it is not an expression")

    def condition(self, node: ast.expr) -> Condition:
        if isinstance(node, ast.BoolOp):
            parts = tuple(map(self.condition, node.values))
            return Joined(parts, all=isinstance(node.op, ast.And))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return self.condition(node.operand).negated()
        if not isinstance(node, ast.Compare):
            raise self.error(f"{self._of(node)} compares nothing")
        sides = [node.left, *node.comparators]
        parts = tuple(map(self._comparison, node.ops, sides[:-1], sides[1:]))
        return parts[0] if len(parts) == 1 else Joined(parts, all=True)

    def _comparison(self, op: ast.cmpop, left: ast.expr, right: ast.expr) -> Condition:
        if isinstance(op, ast.Is | ast.IsNot):
            if not isinstance(right, ast.Name) or right.id != _MISSING:
                raise self.error("'is' may only be followed by 'missing'")
            return IsMissing(self._column(left), isinstance(op, ast.Is))
        if isinstance(op, ast.In | ast.NotIn):
            return self._membership(left, right, isinstance(op, ast.In))
        sign, constant = _SIGNS[type(op)], self._constant(right)
        if self._constant(left) is not None:
            left, right, sign, constant = right, left, MIRRORED[sign], self._constant(left)
        if constant is not None:
            return self._compare_constant(sign, left, constant)
        columns = [self._label_column(side) for side in (left, right)]
        if columns[0] and columns[1] and sign in ("==", "!="):
            return SameLabel(columns[0], columns[1], sign == "==")
        return self._compare_terms(sign, self._term(left), self._term(right))

    def _membership(self, left: ast.expr, right: ast.expr, is_in: bool) -> Condition:
        if not isinstance(right, ast.List | ast.Tuple | ast.Set) or not right.elts:
            raise self.error("'in' needs a list of constants, as in region in ['north']")
        equal = ast.Eq()
        parts = tuple(self._comparison(equal, left, element) for element in right.elts)
        membership = Joined(parts, all=False)
        return membership if is_in else membership.negated()

    def _compare_constant(self, sign: str, node: ast.expr, constant: Any) -> Condition:
        """Return the comparison of a column with a label or a date."""
        column = self._label_column(node)
        if column is not None:
            return self._compare_label(sign, column, constant)
        term = self._term(node)
        (unit,) = {c.unit for c in term.columns} if len(term.columns) == 1 else {None}
        date = None if unit is None else term.columns[0].number_of(constant)
        if date is None:
            raise self.error(f"{self._of(node)} cannot be compared with {constant!r}")
        return self._compare_terms(sign, term, Number(float(date), 1))

    def _compare_label(self, sign: str, column: Column, constant: Any) -> Condition:
        if constant not in column.number or isinstance(constant, bool) != isinstance(
            column.values[column.number[constant]], bool
        ):
            raise self.error(f"column {column.name!r} is not declared to hold {constant!r}")
        if sign not in ("==", "!=") and column.kind != ORDINAL:
            raise self.error(f"column {column.name!r} has no order; declare 'levels'")
        place = column.number[constant]
        codes = [c for c in range(len(column.values)) if COMPARISONS[sign](c, place)]
        return OneOf(column, frozenset(codes))

    def _compare_terms(self, sign: str, left: Term, right: Term) -> Comparison:
        columns = left.columns + right.columns
        if not columns:
            raise self.error("it compares two constants")
        dates = {left.dates, right.dates}
        if len(dates) > 1 or not dates <= {0, 1} or len({c.unit for c in columns} - {None}) > 1:
            raise self.error("it mixes dates, or durations, of different units with others")
        return Comparison(sign, left, right)

    def _term(self, node: ast.expr) -> Term:
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
            sign = _OPERATIONS[type(node.op)]
            return Operation(sign, self._term(node.left), self._term(node.right))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return Operation("-", Number(0.0), self._term(node.operand))
        value = node.value if isinstance(node, ast.Constant) else None
        if isinstance(value, int | float) and not isinstance(value, bool):
            if abs(value) < LARGEST_BOUND:
                return Number(float(value))
            raise self.error("a number is too large")
        column = self._column(node)
        if column.kind == NUMERIC or number_labels(column):
            return Reference(column)
        raise self.error(f"column {column.name!r} holds no numbers")

    def _column(self, node: ast.expr) -> Column:
        if not isinstance(node, ast.Name):
            raise self.error(f"{self._of(node)} is not allowed")
        name = self._quoted.get(node.id, node.id)
        if name not in self._columns:
            raise self.error(f"there is no learned column {name!r} among {list(self._columns)}")
        return self._columns[name]

    def _label_column(self, node: ast.expr) -> Column | None:
        """Return the column of labels that a node names, if it names one."""
        column = self._column(node) if isinstance(node, ast.Name) else None
        if column is None or column.kind == NUMERIC or number_labels(column):
            return None
        return column

    def _constant(self, node: ast.expr) -> Any:
        """Return a quoted text or a truth value, None for other nodes."""
        value = node.value if isinstance(node, ast.Constant) else None
        return value if isinstance(value, str | bool) else None

    def _of(self, node: ast.expr) -> str:
        words = {ast.Name: "a name", ast.Constant: "a constant", ast.Call: "a call"}
        if isinstance(node, ast.BinOp) and type(node.op) in _NO_OPERATIONS:
            return _NO_OPERATIONS[type(node.op)]
        return words.get(type(node), type(node).__name__)
