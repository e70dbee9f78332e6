// The page of a sweep. Its file is written again while the sweep goes on, so the page loads it again.
function numberOf(text) {
  return text === null || text === "" || !isFinite(text) ? null : Number(text);
}
// An axis of parallel coordinates: where a trial's setting lies between 0 (below) and 1, and what stands beside it.
function axisOf(title, texts, isLog) {
  const values = texts.map(numberOf), known = values.filter(one => one !== null);
  if (texts.every((text, i) => text === null || values[i] !== null) && known.length > 0) {
    const scale = isLog && Math.min(...known) > 0 ? Math.log : value => value;
    const low = Math.min(...known), high = Math.max(...known), span = scale(high) - scale(low) || 1;
    const place = i => texts[i] === null ? null : low === high ? 0.5 : (scale(values[i]) - scale(low)) / span;
    return { title, place, marks: low === high ? [[0.5, short(low)]] : [[0, short(low)], [1, short(high)]] };
  }
  const names = [...new Set(texts.filter(text => text !== null))].sort(), at = name => names.length === 1 ? 0.5 : names.indexOf(name) / (names.length - 1);
  return { title, place: i => texts[i] === null ? null : at(texts[i]), marks: names.map(name => [at(name), name]) };
}
// A line for each trial through its settings to its value; the better, the bluer.
function parallelCoordinates({ trials, parameters, metric, smaller_is_better: isSmaller }, mark) {
  const width = Math.max(130 * (parameters.length + 1), element("main").clientWidth - 26), height = 300, top = 34, bottom = height - 14;
  const axes = parameters.map(({ key, scale }) => axisOf(key, trials.map(trial => trial.settings[key] ?? null), scale === "log"));
  axes.push(axisOf(metric, trials.map(trial => trial.value === null ? null : String(trial.value)), false));
  const svg = drawn("svg", { viewBox: `0 0 ${width} ${height}`, class: "axes", role: "img", "aria-label": "settings and values of the trials; the table has them as numbers", width, height });
  const x = i => 60 + (width - 120) * i / (axes.length - 1), y = share => bottom - (bottom - top) * share, value = axes[axes.length - 1];
  const lines = trials.map((trial, i) => {
    const places = axes.map(axis => axis.place(i)), end = places[places.length - 1];
    if (end === null) return null;
    const good = isSmaller ? 1 - end : end;
    const path = drawn("path", { d: places.map((place, axis) => place === null ? "" : `${axis === 0 ? "M" : "L"}${x(axis)},${y(place)}`).join(""), stroke: `color-mix(in srgb, var(--blue) ${(100 * good).toFixed(0)}%, var(--faint))`, opacity: 0.4 + 0.6 * good });
    path.append(drawn("title", {}, `trial ${trial.trial}: ${metric} ${short(trial.value)}`));
    path.addEventListener("pointerenter", () => mark(i));
    path.addEventListener("pointerleave", () => mark(null));
    return path;
  });
  svg.append(...lines.filter(line => line));
  for (const [i, axis] of axes.entries()) {
    svg.append(drawn("line", { x1: x(i), x2: x(i), y1: top, y2: bottom, stroke: "var(--faint)" }), drawn("text", { x: x(i), y: 12, "text-anchor": "middle" }, axis.title));
    for (const [share, text] of axis.marks) svg.append(drawn("text", { x: x(i) + (axis === value ? 6 : -6), y: y(share) + 4, "text-anchor": axis === value ? "start" : "end" }, text));
  }
  return { lines, element: inside(make("div", undefined, { class: "scroll", role: "region", "aria-label": "Parallel coordinates", tabindex: 0 }), svg) };
}
// The trials' values over time, and the best so far.
function progressChart({ trials, metric, smaller_is_better: isSmaller }) {
  const ended = trials.filter(trial => trial.value !== null && trial.end !== null).sort((one, other) => one.end - other.end), steps = ended.map(trial => trial.end);
  const best = ended.reduce((list, { value }) => [...list, list.length === 0 ? value : Math[isSmaller ? "min" : "max"](value, list[list.length - 1])], []);
  const chart = new Chart(metric + " of trials over time", new View(), { x: duration, tick: duration });
  chart.set([{ name: "best so far", steps, values: best, colour: 0, style: "stairs" }, { name: "trials", steps, values: ended.map(trial => trial.value), colour: 1, style: "dots" }]);
  return chart.element;
}
function trialTable({ trials, parameters, metric }, order, mark) {
  const rows = order.map(i => {
    const trial = trials[i], link = make("a", "trial " + trial.trial, { href: trial.report });
    return [trial.report ? link : link.textContent, trial.value === null ? "-" : short(trial.value), trial.state, whole(trial.evaluations), ...parameters.map(({ key }) => trial.settings[key] ?? "-"), { text: trial.why ?? "", kind: "text" }];
  });
  const region = table("Trials", ["trial, the best first", metric, "state", "evaluations", ...parameters.map(({ key }) => key), "why it failed"], rows);
  for (const [at, row] of region.querySelectorAll("tbody tr").entries()) {
    row.dataset.trial = order[at];
    for (const [event, trial] of [["pointerenter", order[at]], ["focusin", order[at]], ["pointerleave", null], ["focusout", null]]) row.addEventListener(event, () => mark(trial));
  }
  return region;
}
function showSweep(data) {
  const { trials, metric } = data, over = trials.filter(trial => trial.state !== "waiting" && trial.state !== "running");
  heading(data.name, [data.folder, new Date(data.time * 1000).toLocaleString()], data.state, { running: "green", done: "blue" }[data.state] ?? "orange");
  const worth = ({ value }) => value === null ? Infinity : data.smaller_is_better ? value : -value;
  const order = [...trials.keys()].sort((one, other) => worth(trials[one]) - worth(trials[other]) || one - other), best = trials[order[0]];
  const card = (title, ...children) => inside(make("section", undefined, { class: "card part" }), make("h2", title), ...children);
  let coordinates = null;
  const mark = chosen => {
    coordinates?.lines.forEach((line, i) => line?.classList.toggle("marked", i === chosen));
    document.querySelectorAll("tr[data-trial]").forEach(row => row.classList.toggle("marked", Number(row.dataset.trial) === chosen));
  };
  coordinates = parallelCoordinates(data, mark);
  const curves = trials.filter(trial => trial.curves).map(trial => ({ name: "trial " + trial.trial, curves: trial.curves }));
  const grid = inside(make("div", undefined, { class: "grid" }), progressChart(data));
  element("main").append(
    tiles([["trials over", `${over.length} / ${trials.length}`], ["running", String(trials.filter(trial => trial.state === "running").length)], ["best " + metric, short(best.value)], ["best trial", best.value === null ? "-" : String(best.trial)], ["method", data.method]]),
    make("h2", "Progress", { class: "hidden-text" }), grid, card("Settings and values", coordinates.element), card("Trials", trialTable(data, order, mark)),
    ...(curves.length > 0 ? showCurves(curves, data.metrics, new View()) : []));
  if (data.state === "running") keepPlace();
}
// Loads the page again while the sweep goes on, unless the reader is at it; the place on it stays.
function keepPlace() {
  let used = 0;
  for (const event of ["pointermove", "pointerdown", "keydown", "scroll"]) addEventListener(event, () => { used = performance.now(); }, { passive: true });
  setInterval(() => { if (!document.hidden && performance.now() - used > 5000) location.reload(); }, 5000);
}
