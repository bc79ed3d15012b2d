"""How a section tells what it found: findings beside their goals, tables, JSON and a plot."""

from __future__ import annotations

import json
import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_COMPARE = {">=": operator.ge, "<=": operator.le, "<": operator.lt, "==": operator.eq}


@dataclass(frozen=True)
class Finding:
    """One figure. `goal` is empty, or a comparison and a number as in ">= 2"."""

    what: str
    value: float
    unit: str = ""
    goal: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the goal is reached; None where there is none."""
        if not self.goal:
            return None
        sign, bound = self.goal.split()
        return bool(_COMPARE[sign](self.value, float(bound)))


@dataclass
class Report:
    """What one section found. `panels` are plots: {"title", "unit", "bars" or "lines"}."""

    section: str
    findings: list[Finding] = field(default_factory=list)
    tables: list[str] = field(default_factory=list)
    panels: list[dict[str, Any]] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, what: str, value: float, unit: str = "", goal: str = "") -> None:
        self.findings.append(Finding(what, value, unit, goal))

    def text(self) -> str:
        parts = [f"== {self.section} ({self.seconds:.0f} s)", *self.tables]
        if self.findings:
            rows = [["figure", "value", "goal", ""]]
            rows += [
                [f.what, f"{number(f.value)} {f.unit}".strip(), f.goal, _verdict(f.met)]
                for f in self.findings
            ]
            parts.append(align(rows))
        parts += [f"cannot run: {failure}" for failure in self.failures]
        return "\n\n".join(parts)

    def record(self) -> dict[str, Any]:
        findings = [
            {"what": f.what, "value": f.value, "unit": f.unit, "goal": f.goal, "met": f.met}
            for f in self.findings
        ]
        return {
            "section": self.section,
            "seconds": self.seconds,
            "findings": findings,
            "failures": self.failures,
            **self.data,
        }


def _verdict(met: bool | None) -> str:
    return {None: "", True: "met", False: "MISSED"}[met]


def number(value: float) -> str:
    """Three or four digits that say something, whatever the size."""
    if value == int(value) and abs(value) < 1e9:
        return f"{value:,.0f}"
    return (
        f"{value:.4f}" if abs(value) < 0.1 else f"{value:.3g}" if value < 100 else f"{value:,.0f}"
    )


def align(rows: Sequence[Sequence[str]]) -> str:
    """A plain-text table: the first column to the left, the others to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def write_json(path: Path, machine: dict[str, Any], reports: Sequence[Report]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {**machine, "sections": [report.record() for report in reports]}
    path.write_text(json.dumps(content, indent=2) + "\n")


def write_plot(path: Path, reports: Sequence[Report]) -> str:
    """Draw the panels of all sections into one PNG; return why that was not possible, or an empty
    string.
    """
    panels = [panel for report in reports for panel in report.panels]
    if not panels:
        return "these sections have no plot"
    try:
        import matplotlib

        matplotlib.use("agg")
        from matplotlib import pyplot
    except ImportError:
        return (
            "matplotlib is absent: pip install 'arena[bench]', or matplotlib alone, draws the plot"
        )
    columns = min(2, len(panels))
    lines = -(-len(panels) // columns)
    figure, axes = pyplot.subplots(
        lines, columns, figsize=(7.5 * columns, 4.0 * lines), squeeze=False, layout="constrained"
    )
    for axis in axes.flat[len(panels) :]:
        axis.remove()
    for axis, panel in zip(axes.flat, panels, strict=False):
        axis.set_title(panel["title"])
        if "bars" in panel:
            names, values = list(panel["bars"]), list(panel["bars"].values())
            axis.barh(names, values, color=["#2b6cb0" if "ours" in n else "#a0aec0" for n in names])
            axis.bar_label(axis.containers[0], fmt="%.3g", padding=3)
            axis.invert_yaxis()
            axis.margins(x=0.12)
            axis.set_xlabel(panel["unit"])
        else:
            for name, points in panel["lines"].items():
                xs, ys = zip(*points, strict=True)
                axis.plot(xs, ys, marker="o", label=name, linewidth=2 if "ours" in name else 1)
            axis.set_xscale("log", base=2)
            axis.set_yscale("log")
            axis.set_xlabel(panel["x"])
            axis.set_ylabel(panel["unit"])
            axis.grid(alpha=0.3)
            axis.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
    return ""
