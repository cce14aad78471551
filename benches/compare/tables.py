"""What is written about a run: tables in Markdown."""

import os
import re
import time

from measure import median, spread

BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"


def seconds(samples):
    if not samples:
        return ""
    value = median(samples)
    words = f"{value:.4f}" if value < 0.1 else f"{value:.3f}" if value < 1 else f"{value:.2f}"
    around = spread(samples)
    return words if around is None else f"{words} ±{around * 100:.0f} %"


def ratio(samples, base):
    if not samples or not base:
        return None
    return median(samples) / median(base)


def times(value):
    return "" if value is None else f"{value:.2f}" if value < 10 else f"{value:.0f}"


def table(head, rows):
    """Rows of strings, padded so that the text reads well too."""
    widths = [max(len(cell) for cell in column) for column in zip(head, *rows)]
    line = lambda cells: "| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths)) + " |"
    return "\n".join([line(head), line(["-" * width for width in widths]), *map(line, rows)]) + "\n"


RATIOS = {
    "effigy --no-trace ÷ overlay": ("effigy --no-trace", "overlay"),
    "effigy ÷ effigy --no-trace": ("effigy", "effigy --no-trace"),
    "effigy --reads ÷ effigy": ("effigy --reads", "effigy"),
    "overlay + strace ÷ overlay": ("overlay + strace", "overlay"),
    "effigy ÷ bare": ("effigy", "bare"),
}


def works(results, variants, journals):
    text = "### Works\n\nSeconds: median, ± half the distance between the quartiles.\n\n"
    text += table(
        ["work", *variants],
        [[work, *(seconds(samples.get(variant)) for variant in variants)] for work, samples in results.items()],
    )
    text += "\nRatios of the medians.\n\n"
    text += table(
        ["work", *RATIOS],
        [
            [work, *(times(ratio(samples.get(a), samples.get(b))) for a, b in RATIOS.values())]
            for work, samples in results.items()
        ],
    )
    if journals:
        text += "\nThe journals. Failed calls are events too.\n\n"
        text += table(
            ["work", "events", "bytes", "bytes an event"],
            [[work, str(n), str(size), f"{size / max(n, 1):.1f}"] for work, (n, size) in journals.items()],
        )
    return text


def calls(results):
    """`results` is {variant: [{call: microseconds}...]}."""
    variants = [variant for variant, samples in results.items() if samples]
    if not variants:
        return ""
    names = list(results[variants[0]][0])
    value = lambda variant, name: median([sample[name] for sample in results[variant]])
    added = {"effigy": ("effigy", "effigy --no-trace"), "strace": ("overlay + strace %file", "overlay")}

    def row(name):
        cells = [name, *(f"{value(variant, name):.1f}" for variant in variants)]
        if all(v in variants for pair in added.values() for v in pair):
            effigy, strace = (value(a, name) - value(b, name) for a, b in added.values())
            cells.append(f"{effigy:+.1f}")
            cells.append(f"{effigy / strace:.2f}" if strace > 0 else "")
        else:
            cells += ["", ""]
        return cells

    text = "### One call\n\nMicroseconds a call, medians. \"Added\" is effigy less effigy --no-trace; the last column is\n"
    text += "that in parts of what strace adds to the same call.\n\n"
    return text + table(["call", *variants, "added", "÷ strace"], [row(name) for name in names])


def commits(results):
    text = "### Making it real\n\nSeconds, as above. \"renames\" renames every file over the one that is there and keeps nothing.\n\n"
    columns = list(dict.fromkeys(column for samples in results.values() for column in samples))
    return text + table(
        ["work", *columns],
        [[work, *(seconds(samples.get(column)) for column in columns)] for work, samples in results.items()],
    )


READ = "read and filter"


def journal(figures):
    text = "### The journal alone\n\nMillion events a second on one core (criterion; 200 000 events as an installation makes them).\n\n"
    return text + table(["what", "million events a second"], [[name, f"{value:.2f}"] for name, value in sorted(figures.items())])


def goals(work, call, commit, figures):
    """(what, reach, measured), as far as measured."""
    found = []

    def goal(what, reach, value):
        if value is not None:
            found.append([what, f"≤ {reach}", times(value), "yes" if value <= reach else "no"])

    for name, samples in work.items():
        if name == "true":
            same = ratio(samples.get("effigy"), samples.get("bwrap + overlays"))
            goal("start and end of a traced `true` ÷ bwrap with the same overlays", 2, same)
        elif name != "sort 3 million lines":
            reach = 1.8 if name.startswith(("create", "untar")) else 1.15
            goal(f"{name}: traced ÷ untraced", reach, ratio(samples.get("effigy"), samples.get("effigy --no-trace")))
    variants = ("effigy", "effigy --no-trace", "overlay + strace %file", "overlay")
    if call and all(call.get(variant) for variant in variants):
        for name in call["effigy"][0]:
            effigy, bare, strace, overlay = (median([s[name] for s in call[v]]) for v in variants)
            if name.startswith(("stat", "open for reading")):
                goal(f"{name}: traced ÷ untraced", 1.05, effigy / bare)
            elif strace > overlay:
                goal(f"{name}: added ÷ added by strace", 0.2, max(effigy - bare, 0) / (strace - overlay))
    for name, samples in commit.items():
        pair = lambda column, base, reach: goal(f"{name}: {column} ÷ {base}", reach, ratio(samples.get(column), samples.get(base)))
        if "all new" in name:
            pair("commit", "mv", 3)
        if "existing" in name:
            # try-commit, which keeps nothing, takes 0.6 of what cp -a takes; this is 1.5 times as much.
            pair("commit", "cp -a", 0.9)
        pair("commit --keep", "cp -a", 1.2)
        if "another" in name:
            pair("commit", "cp -a", 1.2)
        pair("replay", "cp -a", 1.2)
    if READ in figures:
        found.append([f"journal: {READ}, million events a second", "≥ 2", times(figures[READ]), "yes" if figures[READ] >= 2 else "no"])
    if not found:
        return ""
    return "### Goals\n\nRatios of the medians.\n\n" + table(["what", "goal", "measured", "reached"], found)


def busy(load):
    return load > 0.3 * os.cpu_count()


def machine(kind, uid, rounds, quick, cpu, load):
    """The machine, without its name."""
    release = re.match(r"[0-9.]+", os.uname().release).group().rstrip(".")
    user = "root" if uid == 0 else "an ordinary user"
    text = f"{time.strftime('%Y-%m-%d', time.gmtime())}, Linux {release} on {os.uname().machine}, {os.cpu_count()} CPUs; {kind}; {user}; "
    text += "one round each" if rounds == 1 else f"medians of {rounds} rounds"
    text += f"; load {load:.1f} before the start.\n"
    if quick:
        text += "\n**A quick run: few rounds, fewer calls. It shows the order of magnitude, not the ratios.**\n"
    if cpu:
        text += "\n**Works and commits: seconds of CPU time of all processes together, without waiting for the disk.**\n"
    if busy(load):
        text += "\n**The machine was busy with other things: take no elapsed time from this run.**\n"
    return text


def write(file, text):
    """Replaces the results in a file that has a place marked for them, else all that is in it."""
    file.seek(0)
    old = file.read()
    if BEGIN in old and END in old:
        before, rest = old.split(BEGIN, 1)
        text = f"{before}{BEGIN}\n\n{text}\n{END}{rest.split(END, 1)[1]}"
    file.seek(0)
    file.truncate()
    file.write(text)
    file.flush()
