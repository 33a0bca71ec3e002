// What the reader does with a chart: look closer, read values, hide parts, switch axes, take it along.
"use strict";

const KEYS = "Arrow keys read values, + and − zoom, 0 shows all.";
const PAPER = { width: 700, height: 290 };
const LIGHT = { "--ink": "#1b1f24", "--quiet": "#57606a", "--line": "#d0d7de", "--s0": "#0072b2", "--s1": "#d55e00", "--s2": "#009e73", "--s3": "#cc79a7", "--s4": "#b07800", "--s5": "#56b4e9" };

class Panel {
  constructor(figure, chart) {
    this.figure = figure;
    this.view = new View(chart);
    this.plot = figure.querySelector(".plot");
    this.tip = figure.querySelector(".tip");
    this.plot.title = KEYS;
    this.at = null;
    this.listenToControls();
    this.listenToPointer();
    this.plot.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.draw()).observe(this.plot);
  }

  draw({ width, height } = this.plot.getBoundingClientRect()) {
    if (width < 50) return;
    this.frame = this.view.frame(width, height);
    this.plot.replaceChildren(this.view.drawing(width, height));
    if (this.at) this.point(this.at);
  }

  listenToControls() {
    const on = (selector, type, action) => this.figure.querySelectorAll(selector).forEach((node) => node.addEventListener(type, () => action(node)));
    on("select", "change", (select) => { this.view.use(select.dataset.axis, select.value); this.draw(); });
    on("input[type=checkbox]", "change", (box) => this.toggle(+box.value, box.checked));
    on(".closer", "click", () => this.zoom(0.5));
    on(".farther", "click", () => this.zoom(2));
    on(".whole", "click", () => this.reset());
    on(".svg", "click", () => save(`${this.view.chart.title}.svg`, "image/svg+xml", this.image()));
    on(".csv", "click", () => save(`${this.view.chart.title}.csv`, "text/csv", this.numbers()));
  }

  toggle(index, shown) {
    this.view.shown[index] = shown;
    if (this.at?.series === index) this.leave();
    this.draw();
  }

  reset() { this.view.reset(); this.draw(); }

  zoom(factor, axes, about) { this.view.zoom(factor, axes, about); this.draw(); }

  // Drag a box to zoom into it (a flat one zooms along x alone); a finger drags along x, and scrolls the page along y.
  listenToPointer() {
    let from = null;
    const where = (event) => { const box = this.plot.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
    this.plot.addEventListener("pointerdown", (event) => { if (event.button === 0) { from = where(event); this.plot.setPointerCapture(event.pointerId); } });
    this.plot.addEventListener("pointermove", (event) => { const to = where(event); from && far(from, to) ? this.select(from, to) : this.point(this.view.nearest(...to, this.frame)); });
    this.plot.addEventListener("pointerup", (event) => { const to = where(event); if (from && far(from, to)) this.enter(from, to); from = null; });
    this.plot.addEventListener("pointercancel", () => { from = null; this.draw(); });
    this.plot.addEventListener("pointerleave", () => { if (!from) this.leave(); });
    this.plot.addEventListener("dblclick", () => this.reset());
    this.plot.addEventListener("wheel", (event) => {
      if (!event.ctrlKey) return; // a plain wheel scrolls the page
      event.preventDefault();
      this.zoom(1.2 ** Math.sign(event.deltaY), ["x"], { x: this.frame.placeX(where(event)[0]) });
    }, { passive: false });
  }

  select([a, b], [c, d]) {
    const flat = Math.abs(b - d) < 16, top = flat ? MARGIN.top : Math.min(b, d), height = flat ? this.frame.size.y : Math.abs(b - d);
    this.cursor(element("rect", { x: Math.min(a, c), y: top, width: Math.abs(a - c), height, style: "fill: var(--accent)", "fill-opacity": 0.2 }));
  }

  enter([a, b], [c, d]) {
    const { placeX, placeY } = this.frame, sorted = (low, high) => (low < high ? [low, high] : [high, low]);
    if (Math.abs(a - c) > 4) this.view.window.x = sorted(placeX(a), placeX(c));
    if (Math.abs(b - d) >= 16) this.view.window.y = sorted(placeY(b), placeY(d));
    this.draw();
  }

  cursor(...marks) { this.plot.querySelector(".cursor")?.replaceChildren(...marks); }

  // Show what a point says, beside it.
  point(at) {
    if (!at) return this.leave();
    const series = this.view.chart.series[at.series], x = this.frame.x(series.x[at.point]), y = this.frame.y(series.y[at.point]);
    if (x === null || y === null) return this.leave();
    this.at = at;
    this.cursor(element("circle", { cx: x, cy: y, r: 6, fill: "none", "stroke-width": 2, style: "stroke: var(--ink)" }));
    const [name, ...rest] = this.view.words(at);
    const head = document.createElement("b");
    head.append(...inHtml(name));
    this.tip.replaceChildren(head, ...rest.flatMap((line) => [document.createElement("br"), line]));
    this.tip.hidden = false;
    const left = Math.min(x + 12, this.frame.width - this.tip.offsetWidth - 4);
    Object.assign(this.tip.style, { left: `${Math.max(0, left)}px`, top: `${Math.max(0, Math.min(y + 12, this.frame.height - this.tip.offsetHeight))}px` });
  }

  leave() { this.at = null; this.tip.hidden = true; this.cursor(); }

  key(event) {
    const moves = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] };
    const actions = { "+": () => this.zoom(0.5, ["x"], this.middle()), "=": () => this.zoom(0.5, ["x"], this.middle()), "-": () => this.zoom(2), 0: () => this.reset(), Escape: () => this.leave() };
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (moves[event.key]) this.step(...moves[event.key], event.shiftKey ? 20 : 1);
    else if (actions[event.key]) actions[event.key]();
    else return;
    event.preventDefault();
  }

  middle() {
    return this.at ? { x: this.view.scale("x").place(this.view.chart.series[this.at.series].x[this.at.point]) } : {};
  }

  // To the next point of a series that is in the window, in the order along the axis, or to the next series.
  step(along, down, count) {
    const shown = this.view.shown.flatMap((is, i) => (is ? [i] : []));
    if (!shown.length) return;
    const now = this.at ?? { series: shown[0], point: null };
    const series = shown[(shown.indexOf(now.series) + down + shown.length) % shown.length];
    const { x, y } = this.view.chart.series[series];
    const order = x.map((_, i) => i).filter((i) => this.frame.inside(this.frame.x(x[i])) && this.frame.y(y[i]) !== null).sort((a, b) => x[a] - x[b]);
    if (!order.length) return;
    const place = now.point === null ? -1 : down ? nearestTo(order.map((i) => x[i]), this.view.chart.series[now.series].x[now.point]) : order.indexOf(now.point);
    this.point({ series, point: order[Math.max(0, Math.min(order.length - 1, place + along * count))] });
  }

  // The picture as a file of its own, in the colours of paper, with its title and names.
  image() {
    const width = 900, height = 500, names = this.view.chart.series.filter((_, i) => this.view.shown[i]).map((series) => [series.name, series.colour]);
    const svg = this.view.drawing(width, height), head = 30 + 18 * names.length;
    svg.setAttribute("viewBox", `0 ${-head} ${width} ${height + head}`);
    for (const [key, value] of Object.entries({ xmlns: "http://www.w3.org/2000/svg", width, height: height + head })) svg.setAttribute(key, value);
    svg.prepend(element("rect", { x: 0, y: -head, width, height: height + head, fill: "white" }));
    svg.append(element("text", { x: MARGIN.left, y: 18 - head, "font-size": 15, "font-weight": 600, style: "fill: var(--ink)" }, ...inSvg(this.view.chart.title)));
    names.forEach(([name, colour], row) => svg.append(
      element("line", { x1: MARGIN.left, x2: MARGIN.left + 24, y1: 34 - head + 18 * row, y2: 34 - head + 18 * row, "stroke-width": 3, "stroke-dasharray": dashOf(colour), style: `stroke: ${colourOf(colour)}` }),
      element("text", { x: MARGIN.left + 32, y: 38 - head + 18 * row, style: "fill: var(--ink)" }, ...inSvg(name)),
    ));
    return new XMLSerializer().serializeToString(svg).replaceAll(/var\((--\w+)\)/g, (_, name) => LIGHT[name]);
  }

  numbers() {
    const quote = (text) => `"${String(text).replaceAll('"', '""')}"`;
    const rows = this.view.chart.series.flatMap((s) => s.x.map((x, i) => [quote(s.name), x, s.y[i], s.lower ? s.lower[i] : "", s.upper ? s.upper[i] : "", s.notes ? quote(s.notes[i]) : ""].join(",")));
    return ["series,x,y,lower,upper,note", ...rows].join("\n") + "\n";
  }
}

const far = ([a, b], [c, d]) => Math.hypot(a - c, b - d) > 8;

function nearestTo(values, value) {
  return values.reduce((best, v, i) => (Math.abs(v - value) < Math.abs(values[best] - value) ? i : best), 0);
}

function save(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  Object.assign(document.createElement("a"), { href: url, download: name.replaceAll(/[\\/:*?"<>|]/g, "_") }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

// Light or dark by hand; until then as the reader's system has it.
function listenToTheme(button) {
  const system = matchMedia("(prefers-color-scheme: dark)"), root = document.documentElement;
  const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const say = () => { button.textContent = dark() ? "☀ Light" : "☾ Dark"; };
  button.addEventListener("click", () => { root.dataset.theme = dark() ? "light" : "dark"; say(); });
  system.addEventListener("change", say);
  say();
  button.hidden = false;
}

listenToTheme(document.getElementById("theme"));
const charts = JSON.parse(document.getElementById("charts").textContent);
window.ritzPanels = [...document.querySelectorAll("figure.chart")].map((figure) => new Panel(figure, charts[+figure.dataset.chart]));
// Paper has its own width: a picture of the window's would be shrunk, and its words with it.
window.addEventListener("beforeprint", () => window.ritzPanels.forEach((panel) => panel.draw(PAPER)));
window.addEventListener("afterprint", () => window.ritzPanels.forEach((panel) => panel.draw()));
document.documentElement.dataset.ready = "true";
