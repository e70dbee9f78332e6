// Curves: steps in rising order, and a value for each; a value that is null or not finite is a gap.

// Values of a curve as they were sent: a list, or little-endian numbers in Base64.
function numbers(source, Type) {
  if (typeof source !== "string") return source;
  const text = atob(source), all = new Uint8Array(text.length);
  for (let i = 0; i < text.length; ++i) all[i] = text.charCodeAt(i);
  return new Type(all.buffer);
}
// The curve of a metric among curves as Curves::json() has them; it is decoded when it is first drawn.
function curveOf(curves, name) {
  const { steps, values } = curves.metrics[name];
  const curve = {};
  for (const [key, read] of [["steps", () => {
    if (typeof curves.steps[steps] === "string") curves.steps[steps] = numbers(curves.steps[steps], Uint32Array);
    return curves.steps[steps];
  }], ["values", () => numbers(values, Float32Array)]])
    Object.defineProperty(curve, key, { configurable: true, get() {
      const value = read();
      Object.defineProperty(curve, key, { value });
      return value;
    } });
  return curve;
}
// First index whose step is at least `step`.
function indexOf(steps, step) {
  let low = 0, high = steps.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (steps[middle] < step) low = middle + 1; else high = middle;
  }
  return low;
}
const isValue = value => value !== null && isFinite(value);
// Exponential moving average over about `points` points, without bias at the beginning.
function smoothed(values, points) {
  const keep = 1 - 1 / points, all = new Float32Array(values.length);
  let sum = 0, weight = 0;
  for (let i = 0; i < values.length; ++i) {
    if (isValue(values[i])) {
      sum = keep * sum + (1 - keep) * values[i];
      weight = keep * weight + 1 - keep;
    }
    all[i] = isValue(values[i]) ? sum / weight : NaN;
  }
  return all;
}
// Round numbers between two values, about `count` of them.
function ticks(low, high, count) {
  const rough = (high - low) / count, power = 10 ** Math.floor(Math.log10(rough));
  const size = [1, 2, 5, 10].find(one => one * power >= rough) * power, all = [];
  for (let i = Math.ceil(low / size - 1e-9); i * size <= high * (1 + 1e-12) + size * 1e-9; ++i) all.push(i * size);
  return all;
}
function logTicks(low, high) {
  const all = [], many = Math.log10(high / low) > 5;
  for (let power = Math.floor(Math.log10(low)); 10 ** power <= high; power += many ? 2 : 1)
    for (const digit of Math.log10(high / low) < 2 ? [1, 2, 5] : [1]) all.push(digit * 10 ** power);
  return all.filter(one => one >= low && one <= high);
}
