#include "evaluation_pictures.hpp"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gputrain/core/base64.hpp"
#include "gputrain/data/picture_sheet.hpp"

namespace gputrain::app {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kShown = 8;

std::string name_of(const Json& classes, const Json& number) {
  const auto index = number.get<size_t>();
  return index < classes.size() ? classes[index].get<std::string>() : std::to_string(index);
}

/// Returns the name of a class, or its number if the name cannot be drawn.
std::string drawn(const Json& classes, const Json& number) {
  std::string name = name_of(classes, number);
  const bool is_ascii = std::ranges::all_of(name, [](char c) { return c >= ' ' && c <= '~'; });
  return is_ascii ? name : number.dump();
}

std::string sample_of(const Json& one) {
  const auto name = one["name"].get<std::string>();
  return name.empty() ? "sample " + one["position"].dump() : name;
}

/// Returns the bytes of a PNG file; empty: the sample could not be read.
data::SheetTile::Image image_of(const Json& png, bool is_mask = false) {
  return {.png = png.is_string() ? from_base64(png.get<std::string>()).value_or("") : "", .is_mask = is_mask};
}

monitor::Picture drawn_sheet(const std::string& name, const std::vector<data::SheetTile>& tiles, int64_t columns,
                             std::string caption) {
  data::PictureSheet sheet = data::picture_sheet(tiles, columns);
  return {.name = name,
          .png = std::make_shared<const std::string>(std::move(sheet.png)),
          .width = sheet.width,
          .height = sheet.height,
          .caption = std::move(caption)};
}

monitor::Picture worst_samples(const std::string& name, const Json& worst, const Json& classes) {
  std::vector<data::SheetTile> tiles;
  std::string caption;
  for (size_t i = 0; i < std::min(worst.size(), kShown); ++i) {
    const Json &one = worst[i], &target = one["target"], &guess = one["guess"];
    const std::string loss = fmt::format("loss {:.3g}", one["loss"].get<double>());
    tiles.push_back({.images = {image_of(one["png"])},
                     .lines = {{drawn(classes, target)}, {"> " + drawn(classes, guess), guess != target}, {loss}}});
    caption += fmt::format("{}{}. {} → {}, {}, {}", i == 0 ? "" : "\n", i + 1, name_of(classes, target),
                           name_of(classes, guess), loss, sample_of(one));
  }
  return drawn_sheet(name, tiles, 4, std::move(caption));
}

monitor::Picture worst_masks(const std::string& name, const Json& masks) {
  std::vector<data::SheetTile> tiles;
  std::string caption;
  for (size_t i = 0; i < std::min(masks.size(), kShown); ++i) {
    const Json& one = masks[i];
    const std::string wrong = fmt::format("{:.1f}% wrong, ", 100 * one["wrong"].get<double>());
    tiles.push_back({.images = {image_of(one["png"]), image_of(one["truth"], true), image_of(one["prediction"], true)},
                     .lines = {{wrong + sample_of(one)}}});
    caption += fmt::format("{}{}. {}{}", i == 0 ? "image, truth, prediction:\n" : "\n", i + 1, wrong, sample_of(one));
  }
  return drawn_sheet(name, tiles, 2, std::move(caption));
}

}  // namespace

std::vector<monitor::Picture> evaluation_pictures(const Json& details) {
  const auto split = details["split"].get<std::string>();
  const auto worst = details.find("worst"), masks = details.find("masks");
  if (worst != details.end() && !worst->empty() && worst->front().contains("png"))
    return {worst_samples(split + "/worst", *worst, details["classes"])};
  if (masks != details.end() && !masks->empty()) return {worst_masks(split + "/masks", *masks)};
  return {};
}

}  // namespace gputrain::app
