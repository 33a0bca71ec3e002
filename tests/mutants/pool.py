"""All mutants of the core that cosmic-ray makes, and a draw of them by a seed."""

import ast
import random
from collections import defaultdict
from dataclasses import dataclass

from cosmic_ray import plugins
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code

from .cover import CORE, ROOT


@dataclass(frozen=True, order=True)
class Mutant:
    """One change of one place: what the operator makes of its occurrence in a file."""

    path: str
    operator: str
    occurrence: int
    line: int
    last_line: int

    @property
    def name(self):
        return f"{self.path.removeprefix('src/ritz/')}:{self.line} {self.operator} {self.occurrence}"

    def code(self, source):
        return mutate_code(source, plugins.get_operator(f"core/{self.operator}")(), self.occurrence)

    def change(self, root=ROOT):
        """The first line that differs, before and after: what tells a mutant when other lines of its file move."""
        source = (root / self.path).read_text()
        before, after = source.splitlines(), self.code(source).splitlines()
        first = next(i for i in range(len(before)) if i >= len(after) or before[i] != after[i])
        return {"before": before[first].strip(), "after": after[first].strip() if first < len(after) else ""}

    def function(self, root=ROOT):
        """The function around it, `Class.method`, by which it is found when its line has moved; "" outside of all."""
        return ".".join(node.name for node in self._around(root) if not isinstance(node, ast.Lambda))

    def in_function(self, root=ROOT):
        return any(not isinstance(node, ast.ClassDef) for node in self._around(root))

    def _around(self, root):
        """The classes and functions around it, the outermost first."""
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
        nodes = [node for node in ast.walk(ast.parse((root / self.path).read_text())) if isinstance(node, kinds)]
        around = [node for node in nodes if node.lineno <= self.line <= node.end_lineno]
        return sorted(around, key=lambda node: (node.lineno, -node.end_lineno))


def every_mutant(root=ROOT):
    """Every mutant in a fixed order, but for those in annotations: they bind nobody, or end ritz at its import."""
    paths = sorted(path for folder in CORE for path in (root / "src/ritz" / folder).rglob("*.py"))
    return sorted(mutant for path in paths for mutant in _mutants(path, str(path.relative_to(root))))


def draw(mutants, number, seed, kept=()):
    """A draw of mutants: those kept from an earlier draw, filled up by the seed."""
    known = set(kept)
    others = [mutant for mutant in random.Random(seed).sample(mutants, len(mutants)) if mutant not in known]
    return [*kept, *others][:number]


def kept(mutants, record, root=ROOT):
    """{mutant: what is recorded of it} of those whose change can still be made, wherever its line is now."""
    kinds = defaultdict(list)
    for mutant in mutants:
        kinds[mutant.path.removeprefix("src/ritz/"), mutant.operator].append(mutant)
    return {
        mutant: entry
        for name, entry in record.items()
        if (mutant := _nearest(name, entry, kinds[name.split(":")[0], name.split(" ")[1]], root)) is not None
    }


def _nearest(name, entry, mutants, root):
    line = int(name.split(":")[1].split(" ")[0])
    change = {key: entry[key] for key in ("before", "after")}
    same = [m for m in mutants if _has(root / m.path, m, change["before"]) and m.change(root) == change]
    return min(same, key=lambda mutant: abs(mutant.line - line), default=None)


def _has(path, mutant, line):
    return any(text.strip() == line for text in path.read_text().splitlines()[mutant.line - 1 : mutant.last_line])


def _mutants(path, name):
    source = path.read_text()
    tree, annotations = get_ast(source), _annotations(ast.parse(source))
    for operator in _operators():
        at = plugins.get_operator(f"core/{operator}")()
        places = [place for node in ast_nodes(tree) for place in at.mutation_positions(node)]
        for occurrence, (start, end) in enumerate(places):
            if not any(first <= start and end <= last for first, last in annotations):
                yield Mutant(name, operator, occurrence, start[0], end[0])


def _operators():
    """The operators that need no arguments; the others replace variables that somebody has to name."""
    names = sorted(plugins.operator_names())
    return [name.removeprefix("core/") for name in names if not plugins.get_operator(name).arguments()]


def _annotations(tree):
    """(start, end) of every annotation, as (line, column)."""
    nodes = [getattr(node, kind, None) for node in ast.walk(tree) for kind in ("annotation", "returns")]
    return [((n.lineno, n.col_offset), (n.end_lineno, n.end_col_offset)) for n in nodes if n is not None]
