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
// The least and the greatest of parts of a list of values, by those of blocks of 16, of 256, of 4,096 values, and so on. A value
// that is not usable is in none.
class Extremes {
  constructor(values, isUsable) {
    Object.assign(this, { values, isUsable, levels: [] });
    for (let length = values.length; length > 16;) {
      length = Math.ceil(length / 16);
      const lows = new Float64Array(length), highs = new Float64Array(length);
      for (let i = 0; i < length; ++i) [lows[i], highs[i]] = this.walk(this.levels.length, 16 * i, 16 * i + 16);
      this.levels.push([lows, highs]);
    }
  }
  // Reads values, or blocks of a level, one by one.
  walk(level, begin, end) {
    const [lows, highs] = level > 0 ? this.levels[level - 1] : [this.values, this.values];
    let low = Infinity, high = -Infinity;
    for (let i = begin; i < Math.min(end, lows.length); ++i) {
      if (level === 0 && !this.isUsable(lows[i])) continue;
      if (lows[i] < low) low = lows[i];
      if (highs[i] > high) high = highs[i];
    }
    return [low, high];
  }
  // Returns [least, greatest] of values begin to end - 1; [Infinity, -Infinity]: there is none.
  of(begin, end, level = 0) {
    const first = Math.ceil(begin / 16), last = Math.floor(end / 16);
    if (first >= last || level === this.levels.length) return this.walk(level, begin, end);
    const parts = [this.walk(level, begin, 16 * first), this.of(first, last, level + 1), this.walk(level, 16 * last, end)];
    return [Math.min(...parts.map(one => one[0])), Math.max(...parts.map(one => one[1]))];
  }
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
