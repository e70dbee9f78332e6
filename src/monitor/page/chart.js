// Charts of curves. A curve is {name, steps, values, colour, style}, with style "dots" or "stairs" instead of a line. Each
// column of pixels draws the least and the greatest of its values, which `Extremes` finds without reading them all, and only
// charts that are visible are drawn, so that long runs stay smooth.

// Curves beyond the eighth have a colour again, with another dash.
const dashes = number => [[], [6, 3], [2, 2], [8, 2, 2, 2]][Math.floor(number / 8) % 4];

// Sets a text if it is another, because the page's layout is computed anew after each that is set.
function write(element, text) { if (element.textContent !== text) element.textContent = text; }

// What charts of a page share: the visible steps, smoothing, curves that are switched off.
class View {
  charts = new Set();
  range = null;  // [first, last]; null: all
  points = 1;    // smoothing
  hidden = new Set();

  change(what) {
    Object.assign(this, what);
    for (const chart of this.charts) chart.redraw();
    this.onchange?.();
  }
  // Switches for all charts of a view.
  tools(...more) {
    const slider = make("input", undefined, { type: "range", min: 0, max: 30, value: 0 }), told = make("output", "off");
    slider.addEventListener("input", () => {
      const points = Math.round(10 ** (slider.value / 10));
      told.textContent = points > 1 ? `about ${points} points` : "off";
      slider.setAttribute("aria-valuetext", told.textContent);
      this.change({ points });
    });
    const all = make("button", "all steps");
    all.hidden = true;
    all.addEventListener("click", () => this.change({ range: null }));
    this.onchange = () => { all.hidden = !this.range; };
    const hint = make("span", "Drag to zoom; double click or Escape shows all. Keys: arrows, Home, End, + and -.", { class: "faint" });
    return inside(make("div", undefined, { class: "tools", role: "group", "aria-label": "Charts" }),
      inside(make("label", "Smoothing"), slider, told), ...more, all, hint);
  }
}

class Chart {
  static known = new WeakMap();  // Extremes of lists of values, as {all, positive}
  static seen = new IntersectionObserver(entries => entries.forEach(one => one.target.chart.appear(one.isIntersecting)), { rootMargin: "200px" });
  static sizes = new ResizeObserver(entries => entries.forEach(one => one.target.chart.resize()));

  constructor(title, view, { x = step => "step " + whole(step), tick = short } = {}) {
    Object.assign(this, { title, view, x, tick, curves: [], isVisible: false, isLog: false, cursor: null, width: 0, height: 0 });
    this.plot = make("div", undefined, { class: "plot", role: "application", "aria-roledescription": "chart", "aria-label": title, tabindex: 0 });
    this.canvas = make("canvas");
    this.over = make("canvas");  // what moves with the mouse
    this.legend = make("div", undefined, { class: "legend" });
    this.said = make("div", undefined, { class: "hidden-text", role: "status" });
    this.element = inside(make("section", undefined, { class: "card chart" }),
      inside(make("header"), make("h3", title), inside(make("div"),
        this.toggle("log", "logarithmic axis of " + title, on => { this.isLog = on; }),
        this.toggle("wide", "larger chart of " + title, on => this.element.classList.toggle("wide", on)))),
      inside(this.plot, this.canvas, this.over), this.legend, this.said);
    this.plot.chart = this;
    this.listen();
    view.charts.add(this);
    Chart.seen.observe(this.plot);
    Chart.sizes.observe(this.plot);
  }
  toggle(text, label, change) {
    const button = make("button", text, { "aria-pressed": false, "aria-label": label, title: label });
    button.addEventListener("click", () => {
      const on = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", on);
      change(on);
      this.redraw();
    });
    return button;
  }

  // Shows these curves from now on.
  set(curves) {
    const isNew = curves.length !== this.curves.length || curves.some((one, i) => one.name !== this.curves[i].name);
    this.curves = curves;
    if (isNew) this.makeLegend();
    this.redraw();
  }
  makeLegend() {
    this.when = make("span");
    this.entries = this.curves.map(curve => {
      const entry = make("button", undefined, { "aria-pressed": !this.view.hidden.has(curve.name) }), value = make("b"), line = drawn("svg", { viewBox: "0 0 18 8", "aria-hidden": true });
      line.append(drawn("line", { x1: 0, x2: 18, y1: 4, y2: 4, stroke: `var(--${COLOURS[curve.colour % 8]})`, "stroke-width": 3, "stroke-dasharray": dashes(curve.colour).join(" ") }));
      inside(entry, line, curve.name + " ", value);
      entry.addEventListener("click", () => {
        const { hidden } = this.view;
        if (!hidden.delete(curve.name)) hidden.add(curve.name);
        this.view.change({});
      });
      return { entry, value };
    });
    this.legend.replaceChildren(...this.entries.map(one => one.entry), this.when);
  }

  resize() {
    Object.assign(this, { width: this.plot.clientWidth, height: this.plot.clientHeight });
    this.redraw();
  }
  appear(isVisible) {
    this.isVisible = isVisible;
    if (isVisible && this.isStale) this.redraw();
  }
  // Draws with the next frame, or once it is visible.
  redraw() {
    this.isStale = true;
    if (!this.isVisible || this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this.draw();
    });
  }
  shown() { return this.curves.filter(one => !this.view.hidden.has(one.name) && one.steps.length > 0); }
  // The values as they are drawn.
  valuesOf(curve) {
    if (this.view.points === 1 || curve.style) return curve.values;
    if (curve.averagedOver !== this.view.points || curve.averaged.length !== curve.values.length)
      Object.assign(curve, { averaged: smoothed(curve.values, this.view.points), averagedOver: this.view.points });
    return curve.averaged;
  }
  range(shown) {
    if (this.view.range) return this.view.range;
    const first = Math.min(...shown.map(one => one.steps[0])), last = Math.max(...shown.map(one => one.steps[one.steps.length - 1]));
    return last > first ? [first, last] : [first - 1, last + 1];
  }
  // The part of a curve that is visible, with a neighbour on both sides.
  visible(curve, [first, last]) {
    return [Math.max(0, indexOf(curve.steps, first) - 1), Math.min(curve.steps.length, indexOf(curve.steps, last) + 1)];
  }
  isUsable = value => isValue(value) && !(this.isLog && value <= 0);
  // Kept for typed arrays; lists grow while a run goes on.
  extremes(values) {
    const name = this.isLog ? "positive" : "all", known = Chart.known.get(values) ?? {};
    known[name] ??= new Extremes(values, this.isUsable);
    if (ArrayBuffer.isView(values)) Chart.known.set(values, known);
    return known[name];
  }
  bounds(shown, range) {
    let low = Infinity, high = -Infinity;
    for (const curve of shown) {
      const [least, greatest] = this.extremes(this.valuesOf(curve)).of(...this.visible(curve, range));
      if (least < low) low = least;
      if (greatest > high) high = greatest;
    }
    if (low > high) return null;
    const scale = this.isLog ? Math.log : value => value, back = this.isLog ? Math.exp : value => value;
    const margin = (scale(high) - scale(low)) * 0.05 || Math.abs(scale(high)) * 0.05 || 1;
    return [back(scale(low) - margin), back(scale(high) + margin)];
  }
  // Sets a canvas to its size in pixels, and returns what draws on it.
  cleared(canvas) {
    const ratio = devicePixelRatio || 1;
    canvas.width = Math.round(this.width * ratio);
    canvas.height = Math.round(this.height * ratio);
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    return pen;
  }

  draw() {
    const { width, height } = this;
    if (width === 0) return;
    this.isStale = false;
    const pen = this.cleared(this.canvas), style = getComputedStyle(this.plot);
    const colour = name => style.getPropertyValue("--" + name);
    const shown = this.shown(), range = shown.length > 0 ? this.range(shown) : [0, 1], bounds = shown.length > 0 ? this.bounds(shown, range) : null;
    const left = 52, right = width - 8, top = 6, bottom = height - 18;
    const scale = this.isLog ? Math.log : value => value, [low, high] = (bounds ?? [1, 2]).map(scale);
    this.place = {
      left, right, top, bottom, range, colour,
      x: step => left + (right - left) * (step - range[0]) / (range[1] - range[0]),
      y: value => bottom - (bottom - top) * (scale(value) - low) / (high - low),
      step: x => range[0] + (range[1] - range[0]) * Math.min(1, Math.max(0, (x - left) / (right - left))),
    };
    pen.font = "11px system-ui, sans-serif";
    pen.fillStyle = colour("faint");
    pen.strokeStyle = colour("line");
    if (!bounds) pen.fillText(this.curves.some(one => one.steps.length > 0) ? "no values here" : "no values yet", left, (top + bottom) / 2);
    else this.drawAxes(pen, bounds);
    pen.save();
    pen.beginPath();
    pen.rect(left - 4, top - 4, right - left + 8, bottom - top + 8);
    pen.clip();
    for (const curve of bounds ? shown : []) {
      pen.strokeStyle = pen.fillStyle = colour(COLOURS[curve.colour % 8]);
      const values = this.valuesOf(curve);
      if (values !== curve.values) {
        pen.globalAlpha = 0.25;
        this.trace(pen, curve, curve.values);
        pen.globalAlpha = 1;
      }
      this.trace(pen, curve, values);
    }
    pen.restore();
    this.point(this.cursor);
    for (const [i, curve] of this.curves.entries()) this.entries[i].entry.setAttribute("aria-pressed", !this.view.hidden.has(curve.name));
  }
  drawAxes(pen, [low, high]) {
    const { left, right, bottom, range, x, y } = this.place, steps = Math.max(2, Math.floor((right - left) / 90));
    pen.textAlign = "right";
    for (const value of (this.isLog ? logTicks(low, high) : ticks(low, high, 5))) {
      pen.beginPath();
      pen.moveTo(left, Math.round(y(value)) + 0.5);
      pen.lineTo(right, Math.round(y(value)) + 0.5);
      pen.stroke();
      pen.fillText(short(value), left - 5, Math.max(10, y(value) + 4));
    }
    pen.textAlign = "center";
    for (const step of ticks(...range, steps)) {
      const text = this.tick(step), half = pen.measureText(text).width / 2;
      pen.fillText(text, Math.min(right - half, Math.max(left + half, x(step))), bottom + 14);
    }
  }
  trace(pen, curve, values) {
    const { range, left, right, x, y } = this.place, { steps } = curve, [begin, end] = this.visible(curve, range), { isUsable } = this;
    pen.lineWidth = 1.5;
    pen.lineJoin = "round";
    pen.setLineDash(dashes(curve.colour));
    const dots = [];
    pen.beginPath();
    if (end - begin > 3 * (right - left) && curve.style !== "dots") {
      this.fillColumns(pen, steps, values, begin, end);
    } else {
      let isDown = false, before = 0;
      for (let i = begin; i < end; ++i) {
        if (!isUsable(values[i])) { isDown = false; continue; }
        const across = x(steps[i]), down = y(values[i]);
        if (curve.style === "stairs" && isDown) pen.lineTo(across, before);
        if (isDown && curve.style !== "dots") pen.lineTo(across, down); else pen.moveTo(across, down);
        const isAlone = !isDown && !(i + 1 < end && isUsable(values[i + 1]));
        if (end - begin < 60 || isAlone || curve.style === "dots") dots.push([across, down]);
        isDown = true;
        before = down;
      }
    }
    pen.stroke();
    pen.setLineDash([]);
    for (const [across, down] of curve.style === "stairs" ? [] : dots) {
      pen.beginPath();
      pen.arc(across, down, curve.style === "dots" ? 3.5 : 2, 0, 7);
      pen.fill();
    }
  }
  // Fills each column of pixels from its least to its greatest value, and to the last one of the column before.
  fillColumns(pen, steps, values, begin, end) {
    const { left, right, step, y } = this.place, extremes = this.extremes(values);
    let before = NaN;
    for (let column = left - 1; begin < end && column <= right + 1; ++column) {
      const next = column > right ? end : Math.min(end, indexOf(steps, step(column + 1)));
      if (next <= begin) continue;
      const [low, high] = extremes.of(begin, next);
      if (low <= high) {
        const top = y(before > high ? before : high), bottom = y(before < low ? before : low);
        pen.fillRect(column, top - 0.75, 1, bottom - top + 1.5);
        let last = next - 1;
        while (!this.isUsable(values[last])) --last;
        before = values[last];
      } else {
        before = NaN;
      }
      begin = next;
    }
  }

  // Index of the point that is nearest to a step; null: the curve is not there.
  nearest(curve, step) {
    const { steps } = curve, after = Math.min(steps.length - 1, indexOf(steps, step)), before = Math.max(0, after - 1);
    const index = step - steps[before] < steps[after] - step ? before : after, gap = (this.place.range[1] - this.place.range[0]) / 50;
    return step < steps[0] - gap || step > steps[steps.length - 1] + gap ? null : index;
  }
  // Shows the values at a step, or the last ones; `drag`: the marked part.
  point(cursor, drag = null) {
    this.cursor = cursor;
    if (!this.place) return;
    const pen = this.cleared(this.over), { left, top, bottom, x, y, colour } = this.place, told = [];
    if (drag) {
      pen.globalAlpha = 0.2;
      pen.fillStyle = colour("blue");
      pen.fillRect(Math.min(...drag), top, Math.abs(drag[1] - drag[0]), bottom - top);
      pen.globalAlpha = 1;
    }
    if (cursor !== null && x(cursor) >= left - 1) {
      pen.fillStyle = colour("faint");
      pen.fillRect(Math.round(x(cursor)), top, 1, bottom - top);
    }
    for (const [i, curve] of this.curves.entries()) {
      const { value } = this.entries[i], values = this.valuesOf(curve);
      const index = this.view.hidden.has(curve.name) || curve.steps.length === 0 ? null : cursor === null ? curve.steps.length - 1 : this.nearest(curve, cursor);
      write(value, index === null ? "" : short(values[index]));
      if (index === null || cursor === null) continue;
      told.push(curve.name + " " + short(values[index]));
      if (!(values[index] > 0) && this.isLog) continue;
      pen.fillStyle = colour(COLOURS[curve.colour % 8]);
      pen.beginPath();
      pen.arc(x(curve.steps[index]), y(values[index]), 3.5, 0, 7);
      pen.fill();
    }
    write(this.when, cursor === null ? "" : "at " + this.x(cursor));
    return told;
  }
  say(cursor) { this.said.textContent = this.x(cursor) + ": " + (this.point(cursor) || []).join(", "); }

  listen() {
    let begin = null;
    const x = event => event.clientX - this.plot.getBoundingClientRect().left;
    // The step of a point near the mouse, so that what is told is a step that exists.
    const stepAt = position => {
      const step = this.place.step(position);
      let best = null;
      for (const curve of this.shown()) {
        const index = this.nearest(curve, step);
        if (index !== null && (best === null || Math.abs(curve.steps[index] - step) < Math.abs(best - step))) best = curve.steps[index];
      }
      return best;
    };
    this.plot.addEventListener("pointerdown", event => {
      if (event.button !== 0 || !this.place) return;
      begin = x(event);
      this.plot.setPointerCapture?.(event.pointerId);
    });
    this.plot.addEventListener("pointermove", event => {
      if (this.place) this.point(stepAt(x(event)), begin === null ? null : [begin, x(event)]);
    });
    this.plot.addEventListener("pointerup", event => {
      const from = begin, to = x(event);
      begin = null;
      if (from === null || !this.place) return;
      if (Math.abs(to - from) > 5) this.view.change({ range: [this.place.step(Math.min(from, to)), this.place.step(Math.max(from, to))] });
      else this.point(stepAt(to));
    });
    this.plot.addEventListener("pointercancel", () => { begin = null; });
    this.plot.addEventListener("pointerleave", () => { if (begin === null) this.point(null); });
    this.plot.addEventListener("dblclick", () => this.view.change({ range: null }));
    this.plot.addEventListener("blur", () => this.point(null));
    this.plot.addEventListener("keydown", event => this.press(event));
  }
  press(event) {
    const shown = this.shown();
    if (event.ctrlKey || event.metaKey || event.altKey || !this.place || shown.length === 0) return;
    const { range } = this.place, span = range[1] - range[0];
    // The nearest visible step of a curve after or before another; that one if there is none.
    const next = (from, isAhead) => {
      const found = shown.map(({ steps }) => {
        const at = indexOf(steps, from);
        return isAhead ? steps[steps[at] === from ? at + 1 : at] : steps[at - 1];
      }).filter(step => step >= range[0] && step <= range[1]);
      return found.length === 0 ? this.cursor ?? from : isAhead ? Math.min(...found) : Math.max(...found);
    };
    const inRange = step => Math.min(range[1], Math.max(range[0], step));
    const zoom = factor => {
      const middle = inRange(this.cursor ?? range[0] + span / 2), begin = middle - span * factor / 2;
      this.view.change({ range: [begin, begin + span * factor] });
    };
    const first = range[0] - 1e-6, last = range[1] + 1e-6, jump = event.shiftKey ? span / 10 : 0;
    const moves = {
      ArrowRight: () => next(Math.min(range[1], (this.cursor ?? first) + jump), true),
      ArrowLeft: () => next(Math.max(range[0], (this.cursor ?? last) - jump), false),
      Home: () => next(first, true),
      End: () => next(last, false),
    };
    if (moves[event.key]) this.say(moves[event.key]());
    else if (event.key === "+" || event.key === "=") zoom(0.5);
    else if (event.key === "-") zoom(2);
    else if (event.key === "Escape") { this.point(null); this.view.change({ range: null }); }
    else return;
    event.preventDefault();
  }
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => document.querySelectorAll(".plot").forEach(one => one.chart?.redraw()));
addEventListener("beforeprint", () => document.querySelectorAll(".plot").forEach(one => one.chart.draw()));
