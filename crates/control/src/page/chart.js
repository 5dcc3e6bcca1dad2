// Charts over time as SVG, drawn anew when there are new samples or another width.

/** A chart. `series` are { name, field, hue }; `format` makes texts of values. A value that is not known is null. */
class Chart {
  constructor(title, series, format, fixedMax) {
    Object.assign(this, { title, series, format, fixedMax, samples: [], end: 0, span: 3600 });
    this.legend = element("ul", { class: "legend" });
    this.values = series.map(({ name, hue }) => {
      const value = element("b");
      this.legend.append(element("li", {}, element("i", { class: hue }), `${name} `, value));
      return value;
    });
    this.svg = drawn("svg", { role: "img" });
    this.tip = element("div", { class: "tip", hidden: "" });
    this.area = element("div", { class: "chart" }, this.svg, this.tip);
    this.figure = element("figure", { class: "card" },
      element("figcaption", {}, element("h3", {}, title), this.legend), this.area);
    this.area.addEventListener("pointermove", (event) => this.point(event));
    this.area.addEventListener("pointerleave", () => this.unpoint());
    new ResizeObserver(() => this.draw()).observe(this.area);
  }

  /** Shows samples, each { time, …fields }, of the `span` seconds before `end`. */
  show(samples, end, span, step) {
    Object.assign(this, { samples, end, span, step });
    this.draw();
  }

  value(series, sample) {
    return sample[series.field];
  }

  textOf(value) {
    return value === null ? "–" : this.format(value);
  }

  draw() {
    const width = this.area.clientWidth;
    if (width === 0) return;
    const height = this.svg.clientHeight || 150;
    this.box = { left: 46, right: width - 4, top: 8, bottom: height - 20 };
    const highest = Math.max(0, ...this.samples.flatMap((sample) => this.series.map((series) => this.value(series, sample))));
    this.max = this.fixedMax ?? niceMax(highest, this.format === bytes);
    this.svg.replaceChildren();
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.drawGrid(width);
    if (this.samples.length < 2) this.text((this.box.left + this.box.right) / 2, height / 2, "Collecting samples", "middle");
    else for (const series of this.series) this.drawSeries(series);
    this.cursor = drawn("line", { class: "cursor", y1: this.box.top, y2: this.box.bottom, visibility: "hidden" });
    this.svg.append(this.cursor);
    this.describe();
  }

  x(time) {
    const { left, right } = this.box;
    return left + (1 - (this.end - time) / this.span) * (right - left);
  }

  y(value) {
    const { top, bottom } = this.box;
    return bottom - (Math.min(value, this.max) / this.max) * (bottom - top);
  }

  drawGrid(width) {
    const { left, right, bottom } = this.box;
    for (const part of [0, 0.5, 1]) {
      const y = Math.round(this.y(this.max * part));
      this.svg.append(drawn("line", { class: "grid", x1: left, x2: right, y1: y, y2: y }));
      this.text(left - 6, y + 4, this.format(this.max * part), "end");
    }
    for (const time of ticks(this.end - this.span, this.end, width < 420 ? 4 : 6)) {
      const x = this.x(time);
      this.svg.append(drawn("line", { class: "grid", x1: x, x2: x, y1: bottom, y2: bottom + 4 }));
      this.text(Math.max(left + 15, Math.min(x, right - 15)), bottom + 16, clockTime(time), "middle");
    }
  }

  text(x, y, content, anchor) {
    const text = drawn("text", { x, y, "text-anchor": anchor });
    text.textContent = content;
    this.svg.append(text);
  }

  drawSeries(series) {
    const group = drawn("g", { class: series.hue });
    for (const run of this.runs(series)) {
      const points = run.map((sample) => `${this.x(sample.time).toFixed(1)},${this.y(this.value(series, sample)).toFixed(1)}`);
      const [first, last] = [this.x(run[0].time), this.x(run.at(-1).time)].map((x) => x.toFixed(1));
      group.append(drawn("path", { class: "area", d: `M${first},${this.box.bottom}L${points.join("L")}L${last},${this.box.bottom}Z` }));
      group.append(drawn("path", { class: "curve", d: `M${points.join("L")}${run.length === 1 ? "h1" : ""}` }));
    }
    this.svg.append(group);
  }

  /** The samples with a value, in runs without gaps. */
  runs(series) {
    const runs = [];
    let before = -Infinity;
    for (const sample of this.samples) {
      if (sample.time < this.end - this.span || this.value(series, sample) === null) continue;
      if (sample.time - before > 2.5 * this.step) runs.push([]);
      runs.at(-1).push(sample);
      before = sample.time;
    }
    return runs;
  }

  describe() {
    const last = this.samples.at(-1);
    const texts = this.series.map((series, index) => {
      const now = last ? this.textOf(this.value(series, last)) : "–";
      this.values[index].textContent = now;
      const values = this.samples.map((sample) => this.value(series, sample)).filter((value) => value !== null);
      const extremes = values.length ? `, from ${this.format(Math.min(...values))} to ${this.format(Math.max(...values))}` : "";
      return `${series.name} ${now}${extremes}`;
    });
    this.svg.setAttribute("aria-label", `${this.title}: ${texts.join("; ")}`);
  }

  point(event) {
    if (!this.samples.length || !this.box) return;
    const bounds = this.area.getBoundingClientRect();
    const x = event.clientX - bounds.left;
    const distance = (sample) => Math.abs(this.x(sample.time) - x);
    const nearest = this.samples.reduce((best, sample) => (distance(sample) < distance(best) ? sample : best));
    const at = this.x(nearest.time);
    this.cursor.setAttribute("x1", at);
    this.cursor.setAttribute("x2", at);
    this.cursor.setAttribute("visibility", "visible");
    const rows = this.series.map((series) =>
      element("div", {}, element("i", { class: `swatch ${series.hue}` }), `${series.name} ${this.textOf(this.value(series, nearest))}`));
    this.tip.replaceChildren(element("div", { class: "muted" }, clockTime(nearest.time, true)), ...rows);
    this.tip.hidden = false;
    this.tip.style.left = `${Math.max(0, Math.min(at + 10, bounds.width - this.tip.offsetWidth))}px`;
  }

  unpoint() {
    this.tip.hidden = true;
    this.cursor?.setAttribute("visibility", "hidden");
  }
}

/** The times of some `max` ticks: whole minutes or hours of the local clock, which its hours and minutes tell exactly. */
function ticks(begin, end, max) {
  const minutes = [1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720];
  const step = 60 * (minutes.find((step) => (end - begin) / (60 * step) <= max) ?? 1440);
  const zone = 60 * new Date(end * 1000).getTimezoneOffset();
  const first = Math.ceil((begin - zone) / step) * step + zone;
  return Array.from({ length: Math.max(0, Math.floor((end - first) / step) + 1) }, (_, index) => first + index * step);
}

/** The next value above that is 1, 2 or 5 times a power of ten, or a power of two for bytes. */
function niceMax(value, binary) {
  if (binary) return 2 ** Math.ceil(Math.log2(Math.max(value, 1024)));
  const size = 10 ** Math.floor(Math.log10(Math.max(value, 1)));
  return [1, 2, 5, 10].map((factor) => factor * size).find((max) => max >= value);
}

function clockTime(time, withSeconds) {
  const options = { hour: "2-digit", minute: "2-digit", hour12: false };
  if (withSeconds) options.second = "2-digit";
  return new Date(time * 1000).toLocaleTimeString("en-GB", options);
}
