"""Charts as SVG: lines over a logarithmic axis, bars by group.  Light, and dark where the
reader prefers it; colours are those of the other pictures of this project."""

import math
from dataclasses import dataclass, field
from html import escape

LIGHT = {"paper": "#FDFCFA", "ink": "#1A2330", "soft": "#5B6573", "grid": "#E4E1DA"}
DARK = {"paper": "#14171C", "ink": "#E2E8F0", "soft": "#98A3B1", "grid": "#2A313B"}

# Blue is ours; the others differ in lightness too, for those who see no colours.
SERIES = [("#194779", "#85BDE1"), ("#A8480A", "#F2B35E"), ("#2F7D5B", "#74CFA5"),
          ("#8A5AA8", "#C7A4E0"), ("#8A8378", "#A9A294"), ("#B23A5B", "#F08CA6")]
DASHES = ["", "", "6 3", "2 3", "8 3 2 3", "4 4"]

FONT = "system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif"


def palette(colours, index):
    rules = [f".paper{{fill:{colours['paper']}}}.halo{{stroke:{colours['paper']}}}"
             f".ink{{fill:{colours['ink']}}}.soft{{fill:{colours['soft']}}}"
             f".grid{{stroke:{colours['grid']}}}.axis{{stroke:{colours['soft']}}}"]
    for number, pair in enumerate(SERIES):
        rules.append(f".l{number}{{stroke:{pair[index]}}}.f{number}{{fill:{pair[index]}}}")
    return "".join(rules)


STYLE = (palette(LIGHT, 0) + ".grid,.axis{stroke-width:1;fill:none}"
         ".line{fill:none;stroke-width:2;stroke-linejoin:round}.first{stroke-width:3}"
         ".halo{stroke-width:3;stroke-linejoin:round;paint-order:stroke}"
         ".mid{text-anchor:middle}.end{text-anchor:end}.b{font-weight:600}"
         ".s11{font-size:11px}.s12{font-size:12px}.s14{font-size:14px}"
         "@media(prefers-color-scheme:dark){" + palette(DARK, 1) + "}")


def number(x):
    return f"{x:.1f}".rstrip("0").rstrip(".")


def text(x, y, words, classes):
    return f'<text class="{classes}" x="{number(x)}" y="{number(y)}">{escape(words)}</text>'


@dataclass
class Series:
    name: str
    points: list              # of (x, y)
    colour: int


@dataclass
class Panel:
    """A square of lines.  Axes are "log2", "log10" or "linear" upwards from 0."""

    title: str
    series: list
    y_kind: str
    y_ticks: list             # of (value, label)
    x_ticks: list
    x_title: str
    left: float = 0
    top: float = 0
    width: float = 330
    height: float = 260
    bounds: list = field(default_factory=list)  # of (value, label): lines across

    def x(self, value):
        low, high = (math.log2(self.x_ticks[i][0]) for i in (0, -1))
        return self.left + self.width * (math.log2(value) - low) / (high - low)

    def y(self, value):
        low, high = self.y_ticks[0][0], self.y_ticks[-1][0]
        if self.y_kind != "linear":
            low, high, value = math.log(low), math.log(high), math.log(value)
        return self.top + self.height * (1 - (value - low) / (high - low))

    def frame(self):
        yield text(self.left, self.top - 14, self.title, "ink b s12")
        right, bottom = self.left + self.width, self.top + self.height
        for value, label in self.y_ticks:
            y = number(self.y(value))
            yield f'<path class="grid" d="M{number(self.left)} {y}H{number(right)}"/>'
            yield text(self.left - 6, self.y(value) + 4, label, "soft end s11")
        for value, label in self.x_ticks:
            yield text(self.x(value), bottom + 17, label, "soft mid s11")
        yield f'<path class="axis" d="M{number(self.left)} {number(bottom)}H{number(right)}"/>'
        yield text(self.left + self.width / 2, bottom + 36, self.x_title, "soft mid s11")

    def line(self, series):
        points = " ".join(f"{number(self.x(x))},{number(self.y(y))}" for x, y in series.points)
        dash = DASHES[series.colour]
        first = " first" if series.colour == 0 else ""
        yield (f'<polyline class="line l{series.colour}{first}" points="{points}"'
               + (f' stroke-dasharray="{dash}"' if dash else "") + "/>")
        for x, y in series.points:
            yield (f'<circle class="f{series.colour}" cx="{number(self.x(x))}" '
                   f'cy="{number(self.y(y))}" r="2.6"/>')

    def labels(self):
        """Names at the lines' ends, moved apart where they would touch."""
        ends = sorted((self.y(s.points[-1][1]) + 4, s) for s in self.series if s.points)
        places = []
        for y, series in ends:
            if places and y < places[-1][0] + 14:
                y = places[-1][0] + 14
            places.append((y, series))
        excess = places[-1][0] - (self.top + self.height + 4) if places else 0
        for y, series in places:
            y -= max(0, excess)
            yield text(self.left + self.width + 10, y, series.name,
                       f"f{series.colour} s11" + (" b" if series.colour == 0 else ""))

    def draw(self, with_labels=True):
        yield from self.frame()
        for series in reversed(self.series):
            yield from self.line(series)
        if with_labels:
            yield from self.labels()


def legend(names, left, top):
    """Colour, dash and name of each series, in one line."""
    for name, colour in names:
        dash = f' stroke-dasharray="{DASHES[colour]}"' if DASHES[colour] else ""
        yield (f'<path class="line l{colour}{" first" if colour == 0 else ""}" '
               f'd="M{number(left)} {number(top - 4)}h22"{dash}/>')
        yield text(left + 28, top, name, "ink s11")
        left += 28 + 6.3 * len(name) + 22


def page(title, description, width, height, parts):
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img" aria-labelledby="t d" '
        f'font-family="{FONT}">',
        f'<title id="t">{escape(title)}</title>', f'<desc id="d">{escape(description)}</desc>',
        f"<style>{STYLE}</style>",
        f'<rect class="paper" width="{width}" height="{height}" rx="8"/>',
        text(24, 30, title, "ink b s14"), *parts, "</svg>", ""])


def panels(title, description, names, drawn):
    """Panels side by side under one legend."""
    for place, panel in enumerate(drawn):
        panel.left, panel.top = 64 + place * 410, 104
    parts = [*legend(names, 24, 56)]
    for panel in drawn:
        parts += panel.draw(with_labels=False)
    return page(title, description, drawn[-1].left + drawn[-1].width + 24, 420, parts)


def bars(title, description, names, groups, unit, bound=None):
    """groups: [(label, {name: (value, note)})]; bound: (value, label), a line across."""
    rows = sum(len(values) for _, values in groups)
    height = 96 + rows * 20 + len(groups) * 30
    left, width = 210, 450
    most = max([v for _, values in groups for v, _ in values.values()]
               + ([bound[0]] if bound else []))
    colours, parts, y = dict(names), [], 60
    first = y
    across = left + width * bound[0] / most if bound else None
    for label, values in groups:
        parts.append(text(24, y + 14, label, "ink b s12"))
        y += 22
        for name, (value, note) in values.items():
            end = left + width * value / most
            parts += [
                text(left - 8, y + 12, name, "soft end s11"),
                f'<rect class="f{colours[name]}" x="{left}" y="{number(y + 2)}" '
                f'width="{number(max(1, end - left))}" height="13" rx="2"/>']
            # A note that the line would cross stands inside its bar.
            if bound and end < across + 6 and end + 12 + 6.3 * len(note) > across:
                parts.append(text(end - 6, y + 12, note, "paper end s11"))
            else:
                parts.append(text(end + 6, y + 13, note, "ink s11 halo"))
            y += 20
        y += 8
    if bound:
        x = number(across)
        parts.append(f'<path class="axis" stroke-dasharray="4 3" d="M{x} {first}V{y}"/>')
        parts.append(text(float(x), y + 14, bound[1], "soft mid s11"))
    parts.append(text(left, y + 14, unit, "soft s11"))
    return page(title, description, 800, height, parts)
