"""Small changes of the code: the operators of cosmic-ray, and the removal of single calls.

What no test can notice (`hidden_lines`) is not changed; what a change cannot reach is found by imports.
"""

import ast
import difflib
import importlib
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SKIPPED_OPERATORS = (
    "VariableReplacer",
    "VariableInserter",
    "ReplaceComparisonOperator_Is_Eq",
    "ReplaceComparisonOperator_IsNot_NotEq",
)
"""The first two need arguments for every single place; the others change nothing for None, enums and classes."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of one file."""

    path: str
    line: int
    operator: str
    code: str


@dataclass(frozen=True, slots=True)
class Place:
    """Somewhere that an operator can change a file."""

    path: str
    start: tuple[int, int]
    operator: str
    occurrence: int


def find_places(path: Path) -> Iterator[Place]:
    """Yield every place of a file that an operator can change and a test could notice."""
    source = path.read_text(encoding="utf-8")
    name = str(path.relative_to(ROOT))
    hidden = hidden_lines(source)
    lines = source.splitlines()
    for start, _end in removable_calls(source):
        yield Place(name, start, "remove-call", 0)
    plugins, trees = importlib.import_module("cosmic_ray.plugins"), importlib.import_module("cosmic_ray.ast")
    nodes = list(trees.ast_nodes(trees.get_ast(source)))
    for operator_name in plugins.operator_names():
        if operator_name.rpartition("/")[2] in SKIPPED_OPERATORS:
            continue
        operator = plugins.get_operator(operator_name)()
        occurrence = 0
        for node in nodes:
            for start, _end in operator.mutation_positions(node):
                # the `*` and `/` of a parameter list are no operators
                is_marker = lines[start[0] - 1][start[1] :].startswith(("*,", "/,"))
                if not is_marker and not any(first <= start < last for first, last in hidden):
                    yield Place(name, start, operator_name, occurrence)
                occurrence += 1


def hidden_lines(source: str) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Return the spans of what no test can notice.

    Annotations, protocols and options of dataclasses are read by type checkers only; an `assert` and `strict=` of `zip`
    fail only when the program is wrong already.
    """
    found = [each for node in ast.walk(ast.parse(source)) for each in _hidden_parts(node)]
    return [(_start(each), _end(each)) for each in found if each is not None]


def _hidden_parts(node: ast.AST) -> Sequence[ast.expr | ast.stmt | None]:  # noqa: PLR0911 - one per kind
    match node:
        case ast.ClassDef(decorator_list=decorators, bases=bases):
            calls = [each for each in decorators if isinstance(each, ast.Call)]
            options = [keyword.value for call in calls for keyword in call.keywords]  # frozen=True, slots=True
            return [*options, node] if any(ast.unparse(base) == "Protocol" for base in bases) else options
        case ast.FunctionDef(returns=returns) | ast.AsyncFunctionDef(returns=returns):
            return [returns]
        case ast.AnnAssign(annotation=ast.Name("TypeAlias")) | ast.Assert():
            return [node]
        case ast.arg(annotation=annotation) | ast.AnnAssign(annotation=annotation):
            return [annotation]
        case ast.If(test=ast.Name("TYPE_CHECKING")):
            return [node]
        case ast.Call(func=ast.Name("zip"), keywords=keywords):
            return [keyword.value for keyword in keywords]
    return []


def removable_calls(source: str) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Return the spans of calls whose result is not used, apart from log messages and proofs for the type checker."""
    return [
        (_start(node), _end(node))
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Call)
        and not ast.unparse(node.value.func).startswith(("log.", "assert_never"))
    ]


def _start(node: ast.expr | ast.stmt) -> tuple[int, int]:
    return node.lineno, node.col_offset


def _end(node: ast.expr | ast.stmt) -> tuple[int, int]:
    return node.end_lineno or node.lineno, node.end_col_offset or node.col_offset


def mutate(place: Place) -> Mutant | None:
    """Return the mutant of a place, None when the change gives the same code."""
    source = (ROOT / place.path).read_text(encoding="utf-8")
    if place.operator == "remove-call":
        code = remove_call(source, place.start)
    else:
        operator = importlib.import_module("cosmic_ray.plugins").get_operator(place.operator)()
        try:
            code = importlib.import_module("cosmic_ray.mutating").mutate_code(source, operator, place.occurrence)
        except AttributeError:  # cosmic-ray cannot replace an exception with a dotted name, such as apsw.Error
            return None
    if code is None or not compiles(code) or ast.dump(ast.parse(code)) == ast.dump(ast.parse(source)):
        return None  # 1e18 written as 1e+18
    return Mutant(place.path, place.start[0], place.operator, code)


def compiles(code: str) -> bool:
    """Whether the code is Python: an operator takes the `*` of a parameter list for a multiplication."""
    try:
        compile(code, "mutant", "exec")
    except SyntaxError:
        return False
    return True


def remove_call(source: str, start: tuple[int, int]) -> str | None:
    """Return the source with `pass` in place of the call that starts here."""
    ends = dict(removable_calls(source))
    if start not in ends:
        return None
    lines = source.splitlines(keepends=True)
    (first, column), (last, end) = start, ends[start]
    # columns of `ast` count bytes
    head = lines[first - 1].encode()[:column].decode()
    tail = lines[last - 1].encode()[end:].decode()
    return "".join([*lines[: first - 1], f"{head}pass{tail}", *lines[last:]])


def sample(sources: Sequence[str], *, count: int, seed: int) -> list[Mutant]:
    """Return `count` mutants, at most one for each position in the code, the same ones for the same seed."""
    by_position: dict[tuple[str, tuple[int, int]], list[Place]] = {}
    for path in sorted({path for pattern in sources for path in ROOT.glob(pattern)}):
        for place in find_places(path):
            by_position.setdefault((place.path, place.start), []).append(place)
    chance = random.Random(seed)
    positions = sorted(by_position)
    chance.shuffle(positions)
    found: list[Mutant] = []
    for position in positions:
        mutant = mutate(chance.choice(by_position[position]))
        if mutant is not None:
            found.append(mutant)
        if len(found) == count:
            break
    return found


def diff(mutant: Mutant) -> str:
    """Return what the mutant changes."""
    before = (ROOT / mutant.path).read_text(encoding="utf-8").splitlines()
    lines = difflib.unified_diff(before, mutant.code.splitlines(), mutant.path, mutant.operator, lineterm="", n=1)
    return "\n".join(lines)


def find_unaffected(folder: Path, modules: Iterable[str], sources: Iterable[str]) -> list[str]:
    """Return the modules that import none of the sources, not even through others, so that they can be loaded before.

    Imports in functions do not count: they take place after the fork.
    """
    mutated = {name_module(path.relative_to(folder)) for pattern in sources for path in folder.glob(pattern)}
    imports = {
        name_module(path.relative_to(folder)): read_imports(path) for path in folder.glob("src/wellkept/**/*.py")
    }
    affected = set(mutated)
    while found := {name for name, used in imports.items() if name not in affected and used & affected}:
        affected |= found
    return [name for name in modules if name not in affected and not name.startswith("wellkept.testing")]


def name_module(path: Path) -> str:
    """Return the name under which a file below `src` is imported."""
    return ".".join(path.with_suffix("").parts[1:]).removesuffix(".__init__")


def read_imports(path: Path) -> set[str]:
    """Return the names that a module imports when it is imported, with the packages that they are in."""
    nodes: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    found: set[str] = set()
    while nodes:
        match nodes.pop():
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                continue
            case ast.Import(names=names):
                found |= {each.name for each in names}
            case ast.ImportFrom(module=str(module), names=names):
                found |= {module, *(f"{module}.{each.name}" for each in names)}
            case node:
                nodes += ast.iter_child_nodes(node)
    return found | {name.rpartition(".")[0] for name in found}
