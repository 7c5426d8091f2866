"""Tools for studies: reports with controls, cached measurements, checks, intervals.

A study is a module with TITLE, Params, QUICK and run(p, progress) -> Report. `cynosure run`
finds those of the package and of a checkout by name, and runs any file:

    import cynosure as cy
    from dataclasses import dataclass

    TITLE = "My study"

    @dataclass(frozen=True)
    class Params:
        n: int = 100

    QUICK = Params(n=10)

    def run(p, progress=cy.study.silent):
        cells = cy.study.over_grid(measure, p, {"d": (2, 4, 8)}, progress)
        table = cy.study.Table.of("Means", cells, {"dimension": "d", "mean": "mean"})
        return cy.study.report_of(p, "What was found.", controls=(), tables=[table])

Wrap slow measurements in `kept(measure, *args)`, or in `over_grid` for a grid: results are cached
beside the report, so a run can be interrupted, continued and drawn again.
"""

from __future__ import annotations

from .._exports import lazily

__getattr__, __dir__, __all__ = lazily(__name__)
