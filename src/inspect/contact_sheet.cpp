#include "gputrain/inspect/contact_sheet.hpp"

#include <algorithm>
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
h1 { font-size: 1.25rem; margin: 0; } p { margin: 0.25rem 0 1rem; opacity: 0.7; }
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
  return page + "</main></body></html>\n";
}

}  // namespace gputrain::app
