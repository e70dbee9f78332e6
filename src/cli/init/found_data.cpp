#include "found_data.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "gputrain/core/error.hpp"
#include "gputrain/core/lower_case.hpp"
#include "gputrain/data/image.hpp"
#include "gputrain/datasets/file_list.hpp"
#include "gputrain/datasets/given_images.hpp"
#include "gputrain/datasets/image_samples.hpp"
#include "gputrain/datasets/roles.hpp"
#include "gputrain/records/image_list.hpp"
#include "job_text.hpp"

namespace gputrain::app {
namespace {

namespace fs = std::filesystem;

bool has_folder(const fs::path& folder, const std::string& name) { return fs::is_directory(folder / name); }

bool has_idx_files(const fs::path& folder) {
  return std::ranges::any_of(fs::directory_iterator(folder), [](const fs::directory_entry& entry) {
    return entry.path().filename().string().starts_with("train-images");
  });
}

/// Numbers in some masks.
FoundMasks look_at_masks(const fs::path& folder) {
  constexpr size_t kMost = 50;
  std::vector<std::string> names = datasets::list_folder(folder.string(), {}).files;
  std::erase_if(names, [](const std::string& name) { return !datasets::is_image_name(name); });
  if (names.empty()) throw Error(ExitCode::data, {.what = "there are no masks", .where = folder.string()});
  FoundMasks found{.looked_at = std::ssize(names)};
  std::set<int> numbers;
  std::vector<std::byte> bytes;
  data::ImageDecoder decoder;
  const size_t count = std::min(kMost, names.size());
  for (size_t i = 0; i < count; ++i) {
    const std::string file = (folder / names[i * names.size() / count]).string();
    datasets::read_image_file(file, bytes);
    decoder.open(bytes, file);
    const data::ImageView mask = decoder.decode_numbers();
    numbers.insert(mask.pixels, mask.pixels + mask.width * mask.height);
  }
  found.looked_at = static_cast<int64_t>(count);
  found.are_black_and_white = numbers == std::set<int>{0, 255};
  constexpr int kIgnored = 255;
  numbers.erase(kIgnored);
  found.classes = found.are_black_and_white ? 2 : numbers.empty() ? 0 : *numbers.rbegin() + 1;
  return found;
}

/// Recognises folders of images and of their masks; empty train: there are none.
FoundData look_for_masks(const fs::path& data) {
  for (const auto& [images, masks] : {std::pair("images", "masks"), {"JPEGImages", "SegmentationClass"}}) {
    const auto has_both = [&](const fs::path& folder) {
      return has_folder(folder, images) && has_folder(folder, masks);
    };
    const datasets::RoleNames roles(datasets::folders_within(data.string()));
    const fs::path train = has_both(data) || roles.train.empty() ? data : data / roles.train;
    if (!has_both(train)) continue;
    FoundData found{.train = {}, .val = "{split: 10%}", .masks = look_at_masks(train / masks)};
    if (found.masks->classes < 2)
      throw Error(ExitCode::data,
                  {.what = "the masks have one class: " + std::to_string(found.masks->looked_at) + " were looked at",
                   .where = (train / masks).string(),
                   .hint = "masks are PNG files whose numbers, or places in a palette, are classes"});
    found.train = "{path: " + in_quotes(train.string()) + ", format: segmentation";
    if (std::string(images) != "images") found.train += std::string(", images: ") + images + ", masks: " + masks;
    found.train += found.masks->are_black_and_white ? ", values: [0, 255], ignore_index: null}"
                                                    : ", num_classes: " + std::to_string(found.masks->classes) + "}";
    if (train != data && !roles.evaluated().empty() && has_both(data / roles.evaluated()))
      found.val = "{path: " + in_quotes((data / roles.evaluated()).string()) + "}";
    return found;
  }
  return {};
}

/// Finds lists of images and records of texts, in a file or in a folder's files that are named by their roles; empty
/// train: there are none.
FoundData look_at_lists(const fs::path& data) {
  fs::path train = data, val;
  if (fs::is_directory(data)) {
    std::map<data::Split, std::string> files;  // first file of each role
    for (const auto& entry : fs::directory_iterator(data)) {
      const std::string name = entry.path().filename().string();
      const auto role = datasets::role_of_name(name.substr(0, name.find('.')));
      if (!role || !entry.is_regular_file() || !records::has_records(name)) continue;
      std::string& file = files[*role];
      if (file.empty() || name < file) file = name;
    }
    const auto file_of = [&](data::Split role) { return files.contains(role) ? data / files[role] : fs::path(); };
    train = file_of(data::Split::train);
    val = file_of(data::Split::val);
    if (val.empty()) val = file_of(data::Split::test);
  }
  if (train.empty()) return {};
  FoundData found{.train = {}, .val = val.empty() ? "{split: 10%}" : "{path: " + in_quotes(val.string()) + "}"};
  const auto train_of = [&](const std::string& format) {
    return "{path: " + in_quotes(train.string()) + ", format: " + format + "}";
  };
  if (const auto list = records::image_list_in(train.string())) {
    found.train = train_of(list->format);
    if (list->image != "image" || list->label != "label")
      found.image = "columns: {image: " + in_quotes(list->image) + ", label: " + in_quotes(list->label) + "}";
  } else if ((found.records = records::found_records(train.string()))) {
    found.train = train_of(found.records->format);
  }
  return found;
}

/// Recognises a folder with a folder for each class, or one for each role with those inside.
FoundData look_at_folder(const fs::path& data) {
  const std::string path = in_quotes(data.string());
  if (FoundData masks = look_for_masks(data); !masks.train.empty()) return masks;
  if (has_idx_files(data)) return {.train = "{path: " + path + ", format: idx}", .val = "{path: " + path + "}"};
  const datasets::RoleNames roles(datasets::folders_within(data.string()));
  // A folder train without folders inside may be a class of vehicles.
  if (roles.train.empty() || datasets::folders_within((data / roles.train).string()).empty()) {
    if (FoundData lists = look_at_lists(data); !lists.train.empty()) return lists;
    return {.train = "{path: " + path + ", format: imagefolder}", .val = "{split: 10%}"};
  }
  const auto folder = [&](const std::string& name) { return in_quotes((data / name).string()); };
  return {.train = "{path: " + folder(roles.train) + ", format: imagefolder}",
          .val = roles.evaluated().empty() ? "{split: 10%}" : "{path: " + folder(roles.evaluated()) + "}"};
}

}  // namespace

FoundData look_at(const fs::path& data) {
  if (!fs::exists(data)) throw Error(ExitCode::data, {.what = "no such file or folder", .where = data.string()});
  const std::string path = in_quotes(data.string());
  const std::string extension = lower_case(data.extension().string());
  const bool is_table = records::has_records(data.string());
  if (fs::is_directory(data)) return look_at_folder(data);
  if (FoundData lists = look_at_lists(data); !lists.train.empty()) return lists;
  if (extension == ".tar") return {.train = "{path: " + path + ", format: tar}", .val = "{split: 10%}"};
  if (extension == ".txt")
    return {.train = "{path: " + path + ", format: text}", .val = "{split: 10%}", .is_text = true};
  throw Error(
      ExitCode::usage,
      {.what = is_table ? "what is learned of these records is not known" : "what this is is not known",
       .where = data.string(),
       .hint = is_table ? "columns such as messages; prompt with completion, or with chosen and rejected; text "
                          "with label; tokens with tags; image with label. `gputrain init --list` shows jobs to "
                          "begin with, whose data.text.columns may name others"
                        : "a folder with a folder of images for each class, or of images and their masks, a .tar "
                          "of such classes, IDX files, a table or JSON with records, or a .txt file"});
}

std::string data_section(const FoundData& found, const std::string& image, const std::string& text) {
  const std::string whole = found.image.empty() ? image : with_key(image.empty() ? "{}" : image, found.image);
  return "\n  train: " + found.train + "\n  val: " + found.val + (whole.empty() ? "" : "\n  image: " + whole) +
         (text.empty() ? "" : "\n  text: " + text);
}

}  // namespace gputrain::app
