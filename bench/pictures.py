"""Makes the pictures and tables of the documentation from a report in JSON: `python -m bench.pictures`."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import Any

from bench import summary
from bench.drawing import Row, bars
from bench.figures import better_by_round
from bench.report import number

ROOT = Path(__file__).parent.parent
FIGURES = ROOT / "docs" / "explanation" / "figures" / "contention.json"
IMAGES = ROOT / "docs" / "images"
BEGIN, END = "<!-- written by python -m bench.pictures -->\n", "<!-- end -->"
STORES = {"files": "", "Redis": "redis_"}
"""The prefixes of the keys of the scenarios on each store."""

BESIDE = {"filelock": "files", "fasteners": "files", "redis-py": "Redis"}
"""The peers in the short table of README.md, and their stores: the most used ones, and the quickest one."""

CHINESE = {
    "interlock vs. a peer (x: factor in favour of interlock)": "interlock 与其他库对比（x：interlock 好的倍数）",
    "hand-over to a waiting process, median µs": "交接给等待的进程，中位数，µs",
    "sections/s, 8 processes": "每秒执行次数，8 个进程",
    "unfairness: longest / mean wait, 1 is even": "不公平程度：最长等待 / 平均等待，1 最公平",
    ", on files": "，文件",
    ", on Redis": "，Redis",
    " vs. ": " 对 ",
    ", load ": "，负载 ",
    " at the start; ": "（开始时）；",
    "rounds, x is the median of their ratios; default settings; ": "轮，x 是各轮比值的中位数；默认设置；",
    "no library lost an update.": "没有一个库丢失更新。",
    "lost updates.": "次更新丢失。",
}
"""The words of the short table, in the order in which they are replaced in README.zh-CN.md."""


def main() -> None:
    """Write all pictures and tables."""
    contention = load()
    for name, drawing in pictures(contention).items():
        (IMAGES / f"bench-{name}.svg").write_text(drawing, encoding="utf-8")
    for page, made in tables(contention).items():
        page.write_text(with_table(page.read_text(encoding="utf-8"), made), encoding="utf-8")


def load() -> dict[str, Any]:
    """Read the report."""
    found: dict[str, Any] = json.loads(FIGURES.read_text(encoding="utf-8"))
    return found


def tables(report: dict[str, Any]) -> dict[Path, str]:
    """Make the tables; return them by their pages."""
    short = chinese = short_table(report)
    for english, translated in CHINESE.items():
        chinese = chinese.replace(english, translated)
    return {
        ROOT / "README.md": short,
        ROOT / "README.zh-CN.md": chinese,
        ROOT / "docs" / "explanation" / "figures.md": table(report),
    }


def with_table(page: str, made: str) -> str:
    """Replace the table between the marks of a page."""
    before, _, rest = page.partition(BEGIN)
    return before + BEGIN + made + END + rest.partition(END)[2]


def pictures(contention: dict[str, Any]) -> dict[str, str]:
    """Draw all pictures; return them by name."""
    made = {}
    for store, key in STORES.items():
        name = store.lower()
        made[f"handover-{name}"] = handover_of(contention, f"{key}handover", store)
        for what, figure, title, unit in (
            ("throughput", "rate", "sections per second, more is better", "sections/s"),
            ("fairness", "longest", "longest wait by mean wait, less is fairer", "times"),
        ):
            rows = [
                Row(one["name"], one["role"], value(one, figure))
                for one in ran(contention, f"{key}processes")
                if one["role"] != "control"
            ]
            made[f"{what}-{name}"] = bars(f"8 processes, one name, {store}: {title}", unit, rows, stated(contention))
    return made


def handover_of(report: dict[str, Any], key: str, store: str) -> str:
    """Draw the durations of hand-overs: 5th to 99th percentile, thick up to the 95th, and the median."""
    rows = [
        Row(one["name"], one["role"], *(value(one, figure) for figure in ("us", "p5", "p99", "p95")))
        for one in ran(report, key)
    ]
    title = f"Hand-over to a waiting process, {store}: median, 5 to 95 %, and up to 99 %"
    return bars(title, "µs from release() to the return of acquire()", rows, stated(report))


def ran(report: dict[str, Any], key: str) -> list[dict[str, Any]]:
    """The contestants of a scenario that took part."""
    (scenario,) = [one for one in report["scenarios"] if one["key"] == key]
    return [one for one in scenario["contestants"] if one["status"] == "ok"]


def value(contestant: dict[str, Any], figure: str) -> float:
    """One figure of a contestant."""
    return float(contestant["figures"].get(figure, {}).get("value") or 0.0)


def stated(report: dict[str, Any]) -> str:
    """One line with the date and the machine of the measurement."""
    about = report["machine"]
    return f"{about['date']}, {about['python']}, {about['processors']}, load {about['load'].split()[0]} at the start"


def short_table(report: dict[str, Any]) -> str:
    """The table of README.md: ours beside a few peers, with ratios."""
    lines_of = [
        "| interlock vs. a peer (x: factor in favour of interlock) "
        "| hand-over to a waiting process, median µs | sections/s, 8 processes "
        "| unfairness: longest / mean wait, 1 is even |",
        "|---|---|---|---|",
    ]
    for peer, store in BESIDE.items():
        cells = []
        for key, figure, digits in (("handover", "us", 0), ("processes", "rate", 0), ("processes", "longest", 1)):
            by_name = {one["name"]: one["figures"][figure] for one in ran(report, STORES[store] + key)}
            ours, theirs = by_name["interlock"], by_name[peer]
            better = better_by_round(ours["rounds"], theirs["rounds"], "high" if figure == "rate" else "low")
            values = f"{ours['value']:,.{digits}f} vs. {theirs['value']:,.{digits}f}"
            cells.append(f"{values} ({number(median(better))}x)")
        lines_of.append(f"| {peer}, on {store} | {' | '.join(cells)} |")
    lost = sum(
        value(one, "lost") for key in STORES.values() for one in ran(report, f"{key}processes") if is_shown(one)
    )
    told = "no library lost an update" if not lost else f"{lost:,.0f} lost updates"
    return "\n".join(lines_of) + f"\n\n{stated(report)}; {rounds(report)}; default settings; {told}.\n"


def rounds(report: dict[str, Any]) -> str:
    """How often it was measured, and what the factors are."""
    return f"{report['rounds']} rounds, x is the median of their ratios"


def is_shown(contestant: dict[str, Any]) -> bool:
    """Whether the short table has this contestant."""
    return contestant["role"] == "ours" or contestant["name"] in BESIDE


def table(report: dict[str, Any]) -> str:
    """The table of all figures: ours, peers and limits, on each store."""
    rows = [f"| {' | '.join(row)} |" for row in (summary.COLUMNS, ["---", "---", "---:", "---"], *report["table"])]
    about = report["machine"]
    versions = ", ".join(one for one in about["versions"].split(", ") if "not installed" not in one)
    return "\n".join(rows) + f"\n\n{stated(report)}; {rounds(report)}; {versions}.\n"


if __name__ == "__main__":
    main()
