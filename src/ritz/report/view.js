// One chart as SVG: its axes, bands, lines, stems and points, within a window that can be moved.
"use strict";

const COLOURS = 6; // --s0 to --s5 of the style sheet
const DASHES = ["", "7 4", "2 3", "8 3 2 3"]; // a second sign beside the colour, for print and for who sees no colours
const TOGETHER = 60; // marks in one path: the time to paint one grows faster than their number
const MARGIN = { left: 62, right: 14, top: 10, bottom: 46 };

function element(name, attributes, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

// A name with its subscripts; what follows one is on the line again.
function inSvg(name) {
  return pieces(name).map((part, i) => element("tspan", i % 2 ? { dy: 3, "font-size": "75%" } : i ? { dy: -3 } : {}, part));
}

const colourOf = (index) => `var(--s${index % COLOURS})`;
const dashOf = (index) => DASHES[Math.floor(index / COLOURS) % DASHES.length];

class View {
  constructor(chart) {
    this.chart = chart;
    this.names = { x: chart.x.scales[0], y: chart.y.scales[0] };
    this.shown = chart.series.map((series) => series.shown);
    this.reset();
  }

  scale(axis) {
    return SCALES[this.names[axis]](this.chart[axis].linear_below);
  }

  use(axis, name) {
    this.names[axis] = name;
    this.reset();
  }

  // The window that shows all: low and high places of either axis.
  reset() {
    this.window = { x: this.whole("x"), y: this.whole("y") };
  }

  whole(axis) {
    const scale = this.scale(axis);
    const values = this.chart.series.flatMap((series, i) => (this.shown[i] ? extent(series, axis) : [])).filter((v) => v !== null && scale.shows(v));
    if (axis === "x") values.push(...this.chart.unknown.map(([low, high]) => Math.max(low, high / 10))); // a decade of what is open
    if (axis === "y" && this.names.y === "linear") values.push(0);
    let low = Infinity, high = -Infinity;
    for (const v of values) { const t = scale.place(v); if (t < low) low = t; if (t > high) high = t; }
    if (!(low < high)) [low, high] = low === high ? [low - 0.5, high + 0.5] : [0, 1];
    const room = 0.03 * (high - low);
    return [low - (axis === "y" && this.names.y === "linear" && low === 0 ? 0 : room), high + 2 * room];
  }

  // Zoom by a factor about a place (the middle unless given), along both axes or one.
  zoom(factor, axes = ["x"], about = {}) {
    for (const axis of axes) {
      const [low, high] = this.window[axis];
      const middle = about[axis] ?? (low + high) / 2;
      this.window[axis] = [middle + (low - middle) * factor, middle + (high - middle) * factor];
    }
  }

  // From values to pixels and back, for a picture of this size.
  frame(width, height) {
    const size = { x: width - MARGIN.left - MARGIN.right, y: height - MARGIN.top - MARGIN.bottom };
    const [x, y] = [this.scale("x"), this.scale("y")];
    const { x: [left, right], y: [bottom, top] } = this.window;
    const column = (t) => MARGIN.left + ((t - left) / (right - left)) * size.x;
    const row = (t) => MARGIN.top + ((top - t) / (top - bottom)) * size.y;
    const floor = MARGIN.top + size.y;
    return {
      width, height, size, floor,
      x: (v) => (v === null || !x.shows(v) ? null : column(x.place(v))),
      y: (v) => (v === null || !y.shows(v) ? null : Math.max(-1e4, Math.min(1e4, row(y.place(v))))),
      placeX: (pixel) => left + ((pixel - MARGIN.left) / size.x) * (right - left),
      placeY: (pixel) => top - ((pixel - MARGIN.top) / size.y) * (top - bottom),
      inside: (px) => px !== null && px >= MARGIN.left - 1 && px <= width - MARGIN.right + 1,
    };
  }

  drawing(width, height) {
    const frame = this.frame(width, height);
    const svg = element("svg", { viewBox: `0 0 ${width} ${height}`, "font-family": "system-ui, sans-serif", "font-size": 12, "aria-hidden": true });
    const clip = `clip${View.clips++}`;
    const area = { x: MARGIN.left, y: MARGIN.top, width: Math.max(1, frame.size.x), height: Math.max(1, frame.size.y) };
    svg.append(element("defs", {}, element("clipPath", { id: clip }, element("rect", area))));
    const inner = element("g", { "clip-path": `url(#${clip})` });
    inner.append(...this.unknown(frame));
    this.chart.series.forEach((series, i) => { if (this.shown[i]) inner.append(...this.marks(series, i, frame)); });
    svg.append(...this.axis("x", frame), ...this.axis("y", frame), inner, element("g", { class: "cursor" }));
    return svg;
  }

  // Ranges of which the measurement leaves everything open.
  unknown(frame) {
    return this.chart.unknown.flatMap(([low, high]) => {
      const from = frame.x(low) ?? MARGIN.left, to = frame.x(high) ?? MARGIN.left;
      return to <= from ? [] : [
        element("rect", { x: from, y: MARGIN.top, width: to - from, height: frame.size.y, style: "fill: var(--line)", "fill-opacity": 0.45 }),
        ...(to - Math.max(from, MARGIN.left) < 90 ? [] : [element("text", { x: Math.max(from, MARGIN.left) + 6, y: MARGIN.top + 14, style: "fill: var(--quiet)" }, "not resolved")]),
      ];
    });
  }

  axis(name, frame) {
    const across = name === "x", scale = this.scale(name), right = frame.width - MARGIN.right;
    const marks = scale.marks(...this.window[name]), words = marksWritten(marks);
    const parts = marks.flatMap((value, i) => {
      const at = frame[name](value);
      if (at === null || (across ? !frame.inside(at) : at < MARGIN.top - 1 || at > frame.floor + 1)) return [];
      const line = across ? { x1: at, x2: at, y1: MARGIN.top, y2: frame.floor } : { x1: MARGIN.left, x2: right, y1: at, y2: at };
      const place = across ? { x: at, y: frame.floor + 16, "text-anchor": "middle" } : { x: MARGIN.left - 6, y: at + 4, "text-anchor": "end" };
      return [element("line", { ...line, style: "stroke: var(--line)", "stroke-opacity": 0.7 }), element("text", { ...place, style: "fill: var(--quiet)" }, words[i])];
    });
    const middle = MARGIN.top + frame.size.y / 2;
    const place = across ? { x: MARGIN.left + frame.size.x / 2, y: frame.height - 8 } : { transform: `translate(13 ${middle}) rotate(-90)` };
    const edge = across ? { x1: MARGIN.left, x2: right, y1: frame.floor, y2: frame.floor } : { x1: MARGIN.left, x2: MARGIN.left, y1: MARGIN.top, y2: frame.floor };
    return [...parts, element("line", { ...edge, style: "stroke: var(--quiet)" }), element("text", { ...place, "text-anchor": "middle", style: "fill: var(--ink)" }, ...inSvg(this.chart[name].label))];
  }

  marks(series, index, frame) {
    const stroke = `stroke: ${colourOf(series.colour)}`;
    if (series.kind === "line") {
      series = within(series, frame);
      const line = element("path", { d: outline(series.x.map(frame.x), series.y.map(frame.y)), fill: "none", "stroke-width": 1.8, "stroke-dasharray": dashOf(series.colour), style: stroke });
      return series.lower ? [this.band(series, index, frame), line] : [line];
    }
    const parts = portions(this.places(series, frame), TOGETHER);
    const dots = parts.map((part) => element("path", { d: part.map(([x, y]) => `M${tenth(x)} ${tenth(y)}h0`).join(""), fill: "none", "stroke-width": 7, "stroke-linecap": "round", style: stroke }));
    if (series.kind === "points") return [...this.whiskers(series, index, frame), ...dots];
    const stems = parts.map((part) => element("path", { d: part.map(([x, y]) => `M${tenth(x)} ${frame.floor}V${tenth(y)}`).join(""), fill: "none", "stroke-width": 1, "shape-rendering": "crispEdges", style: stroke }));
    return [...stems, ...dots];
  }

  // Where the points of a series are, those on the same half pixel once.
  places(series, frame) {
    const taken = new Set(), places = [];
    series.x.forEach((v, i) => {
      const x = frame.x(v), y = frame.inside(x) ? frame.y(series.y[i]) : null, key = Math.round(2 * x) * 65536 + Math.round(y);
      if (y !== null && !taken.has(key)) { taken.add(key); places.push([x, y]); }
    });
    return places;
  }

  // The errors of points, as far as they are to be seen.
  whiskers(series, index, frame) {
    if (!series.lower) return [];
    const d = series.x.map((v, i) => {
      const x = frame.x(v), low = frame.y(series.lower[i]) ?? frame.floor, high = frame.y(series.upper[i]);
      return x === null || high === null ? "" : `M${tenth(x)} ${tenth(low)}V${tenth(high)}`;
    }).join("");
    return [element("path", { d, fill: "none", "stroke-width": 1.5, style: `stroke: ${colourOf(series.colour)}` })];
  }

  // One closed outline for each stretch of the curve; where a band reaches down to zero it ends at the floor.
  band(series, index, frame) {
    const x = series.x.map(frame.x), high = series.upper.map(frame.y);
    const low = series.lower.map((v) => (v === null ? null : frame.y(v) ?? frame.floor));
    const d = stretches(x.map((at, i) => at !== null && high[i] !== null && low[i] !== null))
      .filter(([first, end]) => end - first > 1)
      .map(([first, end]) => `M${thinned(x, high, first, end).join("L")}L${thinned(x, low, first, end).reverse().join("L")}Z`);
    return element("path", { d: d.join(""), stroke: "none", "fill-opacity": 0.22, style: `fill: ${colourOf(series.colour)}` }); // opacity would take a layer of its own
  }

  // The point that is nearest to a pixel: of a curve by its height there, of stems and points by their ends.
  nearest(px, py, frame) {
    let best = null, least = 40;
    this.chart.series.forEach((series, s) => {
      if (!this.shown[s]) return;
      const across = series.kind === "line" ? 0.5 : 1, bonus = series.kind === "line" ? 4 : 0;
      series.x.forEach((v, i) => {
        const x = frame.x(v);
        if (x === null || Math.abs(x - px) > 40 || !frame.inside(x)) return;
        const y = frame.y(series.y[i]);
        const away = y === null ? Infinity : Math.hypot((x - px) / across, y - py) + bonus;
        if (away < least) { least = away; best = { series: s, point: i }; }
      });
    });
    return best;
  }

  // What a point says of itself, line by line: its place, its height, and what holds the truth.
  words({ series: s, point: i }) {
    const series = this.chart.series[s];
    if (series.notes) return [series.name, asWritten(series.notes[i])];
    const band = series.lower ? ` (${written(series.lower[i])} to ${written(series.upper[i])})` : "";
    return [series.name, `${this.chart.x.label} = ${written(series.x[i], 4)}`, `${this.chart.y.label} = ${written(series.y[i])}${band}`];
  }
}
View.clips = 0;

// The stretch of a curve that is in the window, with one point on either side.
function within(series, frame) {
  const inside = (v) => frame.inside(frame.x(v));
  const first = series.x.findIndex(inside), last = series.x.findLastIndex(inside);
  const cut = (values) => (values ? values.slice(Math.max(0, first - 1), last + 2) : values);
  if (first < 0) return straddling(series, frame);
  return { ...series, x: cut(series.x), y: cut(series.y), lower: cut(series.lower), upper: cut(series.upper) };
}

// A curve without a point in the window may still cross it.
function straddling(series, frame) {
  const next = series.x.findIndex((v) => (frame.x(v) ?? -1) > frame.width - MARGIN.right);
  const cut = (values) => (values && next > 0 ? values.slice(next - 1, next + 1) : values ? [] : values);
  return { ...series, x: cut(series.x), y: cut(series.y), lower: cut(series.lower), upper: cut(series.upper) };
}

// The values along an axis of all points that are drawn, with their bands.
function extent(series, axis) {
  const seen = (values) => values.filter((_, i) => series.y[i] !== null);
  return axis === "y" && series.upper ? [...seen(series.y), ...seen(series.upper)] : seen(series[axis]);
}

function outline(xs, ys) {
  return stretches(xs.map((x, i) => x !== null && ys[i] !== null)).map(([first, end]) => `M${thinned(xs, ys, first, end).join("L")}`).join("");
}

// From where to where there is something: pairs of the first and of what follows the last.
function stretches(there) {
  const pairs = [];
  there.forEach((is, i) => {
    if (is && !there[i - 1]) pairs.push([i, i + 1]);
    else if (is) pairs[pairs.length - 1][1] = i + 1;
  });
  return pairs;
}

function portions(values, size) {
  return Array.from({ length: Math.ceil(values.length / size) }, (_, i) => values.slice(i * size, (i + 1) * size));
}

const NEAR = 0.15; // pixels that nobody sees
const tenth = (v) => Math.round(10 * v) / 10;

// The points of a curve that make it: those between two of them lie within NEAR of the line from one to the other.
function thinned(xs, ys, first, end) {
  const kept = [`${tenth(xs[first])} ${tenth(ys[first])}`];
  let from = first, least = -Infinity, most = Infinity;
  for (let i = first + 1; i < end; i++) {
    const across = xs[i] - xs[from], slope = (ys[i] - ys[from]) / across;
    if (!(across > 0) || slope < least || slope > most) {
      from = i = Math.max(from + 1, i - 1); // the last that fits, or a step straight up
      kept.push(`${tenth(xs[i])} ${tenth(ys[i])}`);
      [least, most] = [-Infinity, Infinity];
      continue;
    }
    least = Math.max(least, slope - NEAR / across);
    most = Math.min(most, slope + NEAR / across);
  }
  if (end - 1 > from) kept.push(`${tenth(xs[end - 1])} ${tenth(ys[end - 1])}`);
  return kept;
}
