// The page of `gputrain compare`: a chart for each metric, a colour for each run.
function swatch(colour) {
  const line = drawn("svg", { viewBox: "0 0 18 8", width: 18, height: 8, "aria-hidden": true });
  line.append(drawn("line", { x1: 0, x2: 18, y1: 4, y2: 4, stroke: `var(--${COLOURS[colour % 8]})`, "stroke-width": 3, "stroke-dasharray": dashes(colour).join(" ") }));
  return line;
}
// Metrics by what they are of, losses first.
function byPart(names) {
  const parts = new Map([["train", []], ["val", []], ["test", []], ["others", []]]);
  for (const name of names.slice().sort((one, other) => other.endsWith("/loss") - one.endsWith("/loss")))
    (parts.get(name.split("/")[0]) ?? parts.get("others")).push(name);
  return parts;
}
// A chart for each metric; a field finds metrics by their names.
function showCurves(runs, metrics, view) {
  const field = make("input", undefined, { type: "search", placeholder: "find a metric", "aria-label": "find a metric" });
  const found = [];
  const all = [...byPart(metrics)].filter(([, list]) => list.length > 0).map(([part, list]) => {
    const grid = make("div", undefined, { class: "grid" }), title = make("h2", part, { class: "group" });
    for (const name of list) {
      const chart = new Chart(name, view);
      chart.set(runs.flatMap((run, colour) => run.curves.metrics[name] ? [Object.assign(curveOf(run.curves, name), { name: run.name, colour })] : []));
      found.push({ name, element: chart.element });
      grid.append(chart.element);
    }
    return inside(make("section", undefined, { "aria-label": part }), title, grid);
  });
  field.addEventListener("input", () => {
    for (const { name, element } of found) element.hidden = !name.includes(field.value);
    for (const part of all) part.hidden = ![...part.querySelectorAll(".chart")].some(one => !one.hidden);
  });
  return [view.tools(...(found.length > 6 ? [field] : [])), ...all];
}
function showRuns({ runs, settings }) {
  const rows = runs.map((run, i) => [inside(make("span"), swatch(i), " " + run.name), run.status, whole(run.step), duration(run.total_seconds ?? NaN), ...settings.map(([, cells]) => cells[i])]);
  return table("Runs", ["run", "status", "step", "time", ...settings.map(([key]) => key)], rows);
}
// Best and last values; the best run of a metric stands out.
function showResults({ runs, results }) {
  const byName = new Map(results.map(one => [one.name, one])), ordered = [...byPart([...byName.keys()]).values()].flat().map(name => byName.get(name));
  const rows = ordered.map(({ name, best, at, last, winner }) => [name, ...runs.map((run, i) => {
    const cell = make("div");
    if (best && best[i] !== null) cell.append(short(best[i]), make("span", " at " + whole(at[i]), { class: "faint" }), make("br"), make("span", "last " + short(last[i]), { class: "faint" }));
    else cell.append(short(last[i]));
    return { text: cell, kind: winner === i ? "best" : "" };
  })]);
  return table("Results", ["metric", ...runs.map(run => run.name)], rows);
}
function showComparison(data) {
  heading("compare", data.runs.map(run => run.path).length > 8 ? [] : [data.runs.map(run => run.path).join("  ")], data.runs.length + " runs", "blue");
  const runs = inside(make("section", undefined, { class: "card part" }), make("h2", data.settings.length > 0 ? "Runs, with the settings that differ" : "Runs; their settings are equal"), showRuns(data));
  const results = inside(make("section", undefined, { class: "card part" }), make("h2", "Best and last values"), showResults(data));
  element("main").append(runs, ...showCurves(data.runs, data.metrics, new View()), results);
}
