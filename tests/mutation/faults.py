"""Small faults that are put into a module, one at a time: which there are, and where.

Faults that no test could find, or that would only be noise, are left out: those in annotations,
docstrings, strings, messages of errors and warnings, decorators, ``__repr__`` and the like, and
``__all__``; and the base of a power, whose exponent is changed instead.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

_OTHER_OPERATORS = {
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Div,),
    ast.Div: (ast.Mult,),
    ast.FloorDiv: (ast.Div,),
    ast.Mod: (ast.FloorDiv,),
    ast.Pow: (ast.Mult,),
    ast.LShift: (ast.RShift,),
    ast.RShift: (ast.LShift,),
    ast.BitAnd: (ast.BitOr,),
    ast.BitOr: (ast.BitAnd,),
    ast.BitXor: (ast.BitAnd,),
    ast.And: (ast.Or,),
    ast.Or: (ast.And,),
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_PAIRS = (
    ("min", "max"),
    ("any", "all"),
    ("floor", "ceil"),
    ("minimum", "maximum"),
    ("argmin", "argmax"),
    ("zeros", "ones"),
    ("exp", "expm1"),
    ("log", "log1p"),
)
_OTHER_NAMES = {a: b for pair in _PAIRS for a, b in (pair, pair[::-1])}
_NOT_MUTATED = {"__repr__", "__str__", "_repr_html_", "_repr_mimebundle_"}
_TEXT_CALLS = {"warn", "Error", "print"}


@dataclass(frozen=True)
class Fault:
    """One fault: a node of a tree and what takes its place.

    Attributes
    ----------
    tree : ast.Module
        The module that it is put into.
    holder : ast.AST
        The node in which something is replaced.
    field : str
        Where in the holder.
    position : int or None
        Where in the field, if that is a list.
    replacement : ast.AST
        What is put there.
    function : str
        Dotted name of the function or class around it; empty for the module itself.
    top : ast.stmt
        The statement of the module that holds it.
    lines : range
        What a test must have run to be able to find it.
    at_import : bool
        Whether it is run when the module is imported, and not with a function.
    """

    tree: ast.Module
    holder: ast.AST
    field: str
    position: int | None
    replacement: ast.AST
    function: str
    top: ast.stmt
    lines: range
    at_import: bool

    @property
    def original(self) -> ast.AST:
        """Return what is replaced."""
        value = getattr(self.holder, self.field)
        return value if self.position is None else value[self.position]

    @property
    def line(self) -> int:
        """Return the line of the fault."""
        return getattr(self.original, "lineno", None) or self.holder.lineno

    @property
    def words(self) -> str:
        """Return the expression or statement before and after."""
        outer = (
            self.holder
            if isinstance(self.original, ast.operator | ast.cmpop | ast.boolop)
            else self.original
        )
        before = ast.unparse(outer)
        put_back = self.original
        self.put()
        after = ast.unparse(outer if outer is self.holder else self.replacement)
        self._set(put_back)
        return f"{_short(before)} -> {_short(after)}"

    def put(self) -> None:
        """Put the fault into its tree."""
        self._set(self.replacement)

    def _set(self, node: ast.AST) -> None:
        if self.position is None:
            setattr(self.holder, self.field, node)
        else:
            getattr(self.holder, self.field)[self.position] = node


class _Place(NamedTuple):
    lines: range
    at_import: bool


def find_faults(source: str) -> list[Fault]:
    """Return all faults of a module, in the order of its text; always the same ones."""
    tree = ast.parse(source)
    faults: list[Fault] = []

    def visit(holder: ast.AST, names: tuple[str, ...], top: Any, where: _Place) -> None:
        for field, value in ast.iter_fields(holder):
            if _is_left_out(holder, field):
                continue
            for position, node in enumerate(value if isinstance(value, list) else [value]):
                if not isinstance(node, ast.AST) or _is_text(node):
                    continue
                index = position if isinstance(value, list) else None
                outermost = node if holder is tree else top
                inner, near = names, where
                if isinstance(node, ast.FunctionDef | ast.ClassDef):
                    inner = (*names, node.name)
                    near = _Place(_all_lines(node), isinstance(node, ast.ClassDef))
                elif isinstance(node, ast.stmt) and not where.at_import:
                    near = _Place(_own_lines(node), False)
                for new in _replacements(node, holder, field):
                    if hasattr(node, "lineno"):
                        ast.fix_missing_locations(ast.copy_location(new, node))
                    spot = (tree, holder, field, index, new)
                    faults.append(Fault(*spot, ".".join(inner), outermost, *near))
                visit(node, inner, outermost, near)

    visit(tree, (), None, _Place(range(1, len(source.splitlines()) + 1), True))
    return faults


def _all_lines(node: ast.stmt) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def _own_lines(node: ast.stmt) -> range:
    """Return the lines of a statement without those of the statements in it."""
    body = getattr(node, "body", None)
    return range(node.lineno, max(body[0].lineno, node.lineno + 1)) if body else _all_lines(node)


def _is_left_out(holder: ast.AST, field: str) -> bool:
    """Tell whether nothing in this field of a node is changed."""
    if field in ("annotation", "returns", "decorator_list", "type_params", "ctx"):
        return True
    if isinstance(holder, ast.Raise):
        return True
    if isinstance(holder, ast.Call) and field in ("args", "keywords"):
        name = getattr(holder.func, "attr", getattr(holder.func, "id", ""))
        return any(name.endswith(text) for text in _TEXT_CALLS)
    # Strings with numbers in them.
    return isinstance(holder, ast.JoinedStr | ast.FormattedValue)


def _is_text(node: ast.AST) -> bool:
    """Tell whether a node is a name for people, or a function that makes one."""
    if isinstance(node, ast.FunctionDef):
        return node.name in _NOT_MUTATED
    if isinstance(node, ast.Assign):
        return isinstance(node.targets[0], ast.Name) and node.targets[0].id == "__all__"
    return isinstance(node, ast.JoinedStr)


def _replacements(node: ast.AST, holder: ast.AST, field: str) -> Iterator[ast.AST]:
    """Yield what takes the place of a node."""
    for other in _OTHER_OPERATORS.get(type(node), ()):
        yield other()
    match node:
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value)) if not _is_base(holder, field):
            yield ast.Constant(value + 1)
            yield ast.Constant(value - 1)
        case ast.Constant(value=float(value)) if not _is_base(holder, field):
            yield ast.Constant(2 * value or 1.0)
            if value:
                yield ast.Constant(value / 2)
        case ast.UnaryOp(op=ast.USub() | ast.Not(), operand=operand):
            yield operand
        case ast.Name(id=name) if name in _OTHER_NAMES:
            yield ast.Name(_OTHER_NAMES[name], ast.Load())
        case ast.Attribute(value=value, attr="inf"):
            yield ast.UnaryOp(ast.USub(), node)
        case ast.Attribute(value=ast.Name(id="np" | "math") as value, attr=name) if (
            name in _OTHER_NAMES
        ):
            yield ast.Attribute(value, _OTHER_NAMES[name], ast.Load())
        case ast.Call(func=ast.Name(id="abs"), args=[argument]):
            yield argument
        case ast.Call(func=ast.Attribute(attr="abs"), args=[argument], keywords=[]):
            yield argument
        case ast.Expr(value=ast.Call()) | ast.AugAssign() | ast.Raise():
            yield ast.Pass()
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield ast.Pass()
        case ast.Break():
            yield ast.Continue()
        case ast.Continue():
            yield ast.Break()
    is_condition = field == "test" or (field == "ifs" and isinstance(holder, ast.comprehension))
    if is_condition and not isinstance(node, ast.Compare | ast.UnaryOp):
        yield ast.UnaryOp(ast.Not(), node)


def _is_base(holder: ast.AST, field: str) -> bool:
    return isinstance(holder, ast.BinOp) and isinstance(holder.op, ast.Pow) and field == "left"


def _short(text: str) -> str:
    """Return an expression in one line of at most 90 characters."""
    line = " ".join(text.split())
    return line if len(line) <= 90 else line[:87] + "..."
