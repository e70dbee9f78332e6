#include "gputrain/inspect/contact_sheet.hpp"

#include <algorithm>
#include <memory>
#include <vector>

#include <fmt/format.h>

#include "gputrain/core/base64.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/printable.hpp"
#include "gputrain/data/one_sample.hpp"
#include "gputrain/data/png.hpp"

namespace gputrain::app {
namespace {

constexpr const char* kHead = R"(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<style>
:root { color-scheme: light dark; }
body { margin: 0 auto; max-width: 1200px; padding: 1rem; font: 14px/1.45 system-ui, sans-serif; }
h1 { font-size: 1.25rem; margin: 0; } h2 { font-size: 1rem; margin: 1.5rem 0 0.5rem; } p { margin: 0.25rem 0 1rem; opacity: 0.7; }
main { display: flex; flex-wrap: wrap; gap: 1rem; }
figure { margin: 0; } figure div { display: flex; gap: 4px; }
img { width: 128px; height: auto; image-rendering: pixelated; } img.plain { outline: 2px solid #2466c8; }
figcaption { max-width: 532px; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
figcaption span { opacity: 0.6; }
</style>
)";

/// Returns the class, or the numbers with their names; empty: the sample has neither.
std::string target_of(const data::Dataset& dataset, int64_t index) {
  const auto& fields = dataset.layout().fields;
  const auto target = std::ranges::find_if(fields, &data::Field::target);
  if (target == fields.end() || target->sizes.size() > 1) return {};
  const auto field = static_cast<size_t>(target - fields.begin());
  const auto names = dataset.class_names();
  if (target->type == at::kFloat && target->numel() == std::ssize(names)) {
    const data::OneSample sample(dataset, index, {});
    std::string text;
    for (size_t i = 0; i < names.size(); ++i)
      text += (i == 0 ? "" : ", ") + names[i] + " " + fmt::format("{:g}", sample.values<float>(field)[i]);
    return text;
  }
  if (target->type != at::kLong || !target->sizes.empty()) return {};
  const data::OneSample sample(dataset, index, {});
  const int64_t number = *sample.values<int64_t>(field);
  return number >= 0 && number < std::ssize(names) ? names[static_cast<size_t>(number)] : std::to_string(number);
}

std::string image_element(const std::string& png, const std::string& what) {
  const std::string kind = what == "plain" ? " class=\"plain\"" : "";
  return "<img" + kind + " title=\"" + what + "\" alt=\"" + what + "\" src=\"data:image/png;base64," + to_base64(png) +
         "\">";
}

/// Returns the image and, if it has one, its mask.
std::string image_elements(const data::Dataset& dataset, int64_t index, const data::ReadContext& context,
                           const std::string& what) {
  const std::string image = image_element(data::png_of(dataset, index, context), what);
  const data::Field* target = dataset.layout().target();
  const bool has_mask = target != nullptr && target->sizes.size() == 2;
  return image + (has_mask ? image_element(data::mask_png_of(dataset, index, context), what + ", mask") : "");
}

constexpr int64_t kMixedRows = 8, kMixedBatches = 4;

/// Returns "cat", or "70 % cat, 30 % dog".
std::string mixed_label(const data::Dataset& dataset, const Batch& batch, int64_t row) {
  const double part = batch.tensor(data::kMixedPart)[row].item<double>();
  const auto names = dataset.class_names();
  const auto name_of = [&](const at::Tensor& targets) {
    const auto number = targets[row].item<int64_t>();
    return number >= 0 && number < std::ssize(names) ? names[static_cast<size_t>(number)] : std::to_string(number);
  };
  if (part == 1) return name_of(batch.tensor(kTarget));
  return fmt::format("{:.0f} % {}, {:.0f} % {}", 100 * part, name_of(batch.tensor(kTarget)), 100 * (1 - part),
                     name_of(batch.tensor(data::kMixedTarget)));
}

/// Shows small micro-batches as the loader gives them to a model.
std::string mixed_batches(const data::Dataset& dataset, const ContactSheet& sheet) {
  const std::shared_ptr<const data::Dataset> borrowed(std::shared_ptr<const data::Dataset>(), &dataset);
  const int64_t rows = std::min(kMixedRows, dataset.size());
  data::Loader loader(borrowed, {.partition = {.global_batch = rows, .micro_batch = rows},
                                 .seed = sheet.seed,
                                 .mix = sheet.mix,
                                 .max_bad_fraction = 1});
  std::string html;
  for (int64_t step = 0; step < kMixedBatches; ++step) {
    const Batch batch = loader.next_step().micro_batches.at(0);
    if (batch.find(data::kMixedPart) == nullptr) return {};  // no classes that could be mixed
    html += fmt::format("<h2>a micro-batch of {}, mixed</h2><main>\n", rows);
    for (int64_t row = 0; row < batch.samples; ++row) {
      const at::Tensor pixels = batch.input()[row].contiguous();
      const std::string png = data::png_of(data::ImageView{.pixels = pixels.const_data_ptr<uint8_t>(),
                                                           .width = pixels.size(1),
                                                           .height = pixels.size(0),
                                                           .channels = pixels.size(2)});
      html += "<figure>" + image_element(png, "mixed") + "<figcaption>" + html_text(mixed_label(dataset, batch, row)) +
              "</figcaption></figure>\n";
    }
    html += "</main>\n";
  }
  return html;
}

}  // namespace

std::string contact_sheet(const data::Dataset& dataset, const ContactSheet& sheet) {
  GPUTRAIN_ASSERT(dataset.layout().is_image(), "a contact sheet is of images");
  std::string page = kHead + ("<title>" + html_text(sheet.title) + "</title></head><body>\n<h1>") +
                     html_text(sheet.title) + "</h1><p>" + html_text(sheet.text) + "</p><main>\n";
  const int64_t count = std::min(sheet.images, dataset.size());
  for (int64_t i = 0; i < count; ++i) {
    const int64_t index = i * dataset.size() / count;
    const std::string name = dataset.sample_name(index);
    const std::string caption =
        " <span>" + html_text(name.empty() ? "sample " + std::to_string(index) : name) + "</span></figcaption>";
    try {
      std::string images = image_elements(dataset, index, {}, "plain");
      const std::string label = html_text(target_of(dataset, index));
      for (int64_t epoch = 0; epoch < sheet.epochs; ++epoch)
        images += image_elements(dataset, index, {.seed = sheet.seed, .epoch = epoch, .augment = true},
                                 "epoch " + std::to_string(epoch + 1));
      page += "<figure><div>" + images + "</div><figcaption>" + label + caption + "</figure>\n";
    } catch (const Error& bad) {
      if (bad.code() != ExitCode::data) throw;
      page += "<figure><figcaption>cannot be read" + caption + "<p>" + html_text(bad.what()) + "</p></figure>\n";
    }
  }
  page += "</main>\n";
  if (sheet.mix.is_on()) page += mixed_batches(dataset, sheet);
  return page + "</body></html>\n";
}

}  // namespace gputrain::app
