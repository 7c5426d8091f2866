"""How exactly each family of transformers is rebuilt from the matrices of its heads.

Small random models of every family in float64, made from their configurations: the largest
difference between the model's P and that of `Head.weights`, and between what its W_O returns and
the sum of `Head.output`; lines of the adapter that are code. CPU seconds for all: about 10.

    python benchmarks/families.py
"""

from __future__ import annotations

import ast
import sys
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from cynosure.pretrained import families, load_transformer

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
IDS = list(range(3, 20))


def errors(kind: str) -> tuple[float, float]:
    """Of P over all layers and heads, and of the output of attention over all layers."""
    from tiny_models import tiny_model

    m = load_transformer(tiny_model(kind).double())
    blocks, caught = m.adapter.blocks(m.model), []
    modules = dict.fromkeys(attrgetter(m.adapter.output)(block) for block in blocks)
    hooks = [x.register_forward_hook(lambda _, __, out: caught.append(out[0])) for x in modules]
    given = np.random.default_rng(0).standard_normal((3, 16, 16)) if m.adapter.picture else IDS
    trace = m.trace(given)
    for hook in hooks:
        hook.remove()
    P = output = 0.0
    for k, x in enumerate(trace.seen):
        heads = m.heads(k)
        mine = np.stack([head.weights(x) for head in heads])
        P = max(P, float(np.abs(mine - trace.attentions[k]).max()))
        added = sum(head.output(x) for head in heads) + m.output_bias(k)
        output = max(output, float(np.abs(added - caught[k].detach().numpy()).max()))
    return P, output


def code(path: Path) -> int:
    """Lines that are neither blank nor comment nor docstring."""
    text = path.read_text(encoding="utf-8")
    strings = {
        line
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    lines = enumerate(text.splitlines(), 1)
    return sum(
        bool(x.strip()) and not x.strip().startswith("#") for i, x in lines if i not in strings
    )


def main() -> None:
    folder = Path(families.__file__).parent
    print("| family | model_type | lines | P | attention output |")
    print("|---|---|---|---|---|")
    worst: list[Any] = []
    for path in sorted(folder.glob("*.py")):
        if path.stem in ("__init__", "adapter"):
            continue
        kinds = import_module(f"cynosure.pretrained.families.{path.stem}").ADAPTERS
        for i, kind in enumerate(kinds):
            found = errors(kind)
            worst += found
            cells = (path.stem if i == 0 else "", kind, code(path) if i == 0 else "")
            print(
                f"| {' | '.join(map(str, cells))} | {found[0]:.1e} | {found[1]:.1e} |", flush=True
            )
    common = code(folder / "adapter.py")
    print(f"\nlargest of all: {max(worst):.1e}; common to all families: {common} lines")


if __name__ == "__main__":
    main()
