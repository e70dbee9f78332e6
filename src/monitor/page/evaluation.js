// What the newest evaluation says of single samples and classes.
const MOST_CLASSES = 40;
function showEvaluation(evaluation) {
  const when = evaluation ? ` (${evaluation.split}, step ${whole(evaluation.step)})` : "";
  const name = number => evaluation.classes[number] ?? String(number);
  section("classes", "Intersection over union" + when, evaluation?.iou && evaluation, one => [intersections(one, name)]);
  section("masks", "Samples with most wrong pixels" + when, evaluation?.masks?.length > 0 ? evaluation.masks : null, one => [maskedSamples(one)]);
  section("confusion", (evaluation?.number_of_classes > MOST_CLASSES ? "Classes that are confused most" : "Confusion matrix") + when, evaluation?.pairs && evaluation, one => one.number_of_classes > MOST_CLASSES ? confusedMost(one, name) : confusionMatrix(one, name));
  section("worst", "Samples with the greatest loss" + when, evaluation?.worst?.length > 0 ? evaluation : null, one => [worstSamples(one, name)]);
}
function confusedMost({ pairs }, name) {
  const mistakes = pairs.filter(([target, guess]) => target !== guess).sort((one, other) => other[2] - one[2]).slice(0, 15);
  return [table("Classes that are confused most", ["is", "taken for", "samples", "of its class"], mistakes.map(([target, guess, samples, all]) => [name(target), name(guess), whole(samples), percent(samples, all)]))];
}
// A row for each class, a column for what its samples were taken for. Precision: of the samples taken for a class, how
// many are of it; recall: of the samples of a class, how many were found.
function confusionMatrix({ pairs, number_of_classes: count }, name) {
  const samples = Array.from({ length: count }, () => new Array(count).fill(0));
  for (const [target, guess, number] of pairs) samples[target][guess] = number;
  const sum = list => list.reduce((all, one) => all + one, 0), classes = [...samples.keys()];
  const rows = classes.map(target => {
    const all = sum(samples[target]);
    const cells = samples[target].map((number, guess) => {
      const share = all > 0 ? number / all : 0;
      return make("div", number === 0 ? "" : whole(number), { title: `${name(target)} taken for ${name(guess)}: ${percent(number, all)}`, "data-share": share.toFixed(3), "data-right": target === guess });
    });
    return [name(target), ...cells, percent(samples[target][target], sum(classes.map(one => samples[one][target]))), percent(samples[target][target], all)];
  });
  const matrix = table("Confusion matrix", ["is, taken for", ...classes.map(name), "precision", "recall"], rows, "confusion");
  for (const cell of matrix.querySelectorAll("[data-share]"))
    cell.parentElement.style.background = `color-mix(in srgb, var(--${cell.dataset.right === "true" ? "green" : "red"}) ${(40 * cell.dataset.share).toFixed(0)}%, transparent)`;
  return [matrix];
}
function worstSamples({ worst, classes }, name) {
  return inside(make("div", undefined, { class: "samples" }), ...worst.map(one => {
    const what = one.name || "sample " + one.position;
    const caption = make("figcaption", name(one.target) + (one.guess === one.target ? "" : `, taken for ${name(one.guess)}`));
    const figure = make("figure");
    if (one.png) figure.append(make("img", undefined, { src: "data:image/png;base64," + one.png, alt: `${name(one.target)}: ${what}` }));
    return inside(figure, inside(caption, make("div", `loss ${short(one.loss)}  ${what}`, { class: "faint" })));
  }));
}
// The colour of a class in masks: the palette of PASCAL VOC.
function colourOfClass(number) {
  const parts = [0, 0, 0];
  for (let bit = 7, rest = number; bit >= 0; --bit, rest >>= 3) for (let i = 0; i < 3; ++i) parts[i] |= (rest >> i & 1) << bit;
  return `rgb(${parts})`;
}
function intersections({ iou }, name) {
  const all = iou.reduce((sum, [, pixels]) => sum + pixels, 0);
  const rows = iou.map(([value, pixels], i) => [inside(make("span"), make("i", undefined, { class: "swatch", style: `background: ${colourOfClass(i)}` }), name(i)), value === null ? "-" : percent(value, 1), percent(pixels, all)]);
  return table("Intersection over union of each class", ["class", "IoU", "of the pixels"], rows);
}
// Image, true mask and predicted mask of each sample.
function maskedSamples(masks) {
  return inside(make("div", undefined, { class: "samples" }), ...masks.map(one => {
    const what = one.name || "sample " + one.position, row = make("div", undefined, { class: "row" });
    for (const [kind, png] of [["image", one.png], ["truth", one.truth], ["prediction", one.prediction]])
      if (png) row.append(make("img", undefined, { src: "data:image/png;base64," + png, alt: `${kind} of ${what}`, title: kind }));
    return inside(make("figure", undefined, { class: "masks" }), row, inside(make("figcaption", what), make("div", `image, truth, prediction; ${percent(one.wrong, 1)} wrong`, { class: "faint" })));
  }));
}
