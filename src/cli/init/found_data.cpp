#include "found_data.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "gputrain/core/error.hpp"
#include "gputrain/core/lower_case.hpp"
#include "gputrain/core/printable.hpp"
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

constexpr const char* kTestForVal = "there is data for test and none for validation: it is used for that";

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
    if (train != data && !roles.val.empty() && !roles.test.empty() && has_both(data / roles.test))
      found.test = "{path: " + in_quotes((data / roles.test).string()) + "}";
    return found;
  }
  return {};
}

/// Returns what the format of records is told by: the last ending, without that of packed files; empty: it is none.
std::string ending_of(const std::string& name) {
  const std::string ending = lower_case(fs::path(name).extension().string());
  return ending == ".txt" || records::has_records(name) ? ending : "";
}

/// Returns a pattern for files of one role and ending, such as train-*.parquet, that no other file fits; empty: there
/// is none.
std::string pattern_of(const std::vector<std::string>& names, const std::vector<std::string>& all) {
  std::string begin = names.front(), end = names.front();
  for (const std::string& name : names) {
    begin.resize(static_cast<size_t>(std::ranges::mismatch(begin, name).in1 - begin.begin()));
    const auto same = std::mismatch(end.rbegin(), end.rend(), name.rbegin(), name.rend()).first - end.rbegin();
    end = end.substr(end.size() - static_cast<size_t>(same));
  }
  const auto fits = [&](const std::string& name) {
    return name.size() >= begin.size() + end.size() && name.starts_with(begin) && name.ends_with(end);
  };
  const bool is_plain = (begin + end).find_first_of("*?[") == std::string::npos;
  return is_plain && !begin.empty() && std::ranges::count_if(all, fits) == std::ssize(names) ? begin + "*" + end : "";
}

/// Files of records in a folder, by their roles.
struct RoleFiles {
  std::map<data::Split, std::vector<std::string>> names;  // sorted
  std::vector<std::string> others;                        // of no role
};

/// Lists them. Where there are folders, a .txt file is about their images, and a table of no role may be.
RoleFiles files_in(const fs::path& folder) {
  const bool has_folders = !datasets::folders_within(folder.string()).empty();
  RoleFiles files;
  std::set<std::string> all;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.is_regular_file() && !ending_of(entry.path().filename().string()).empty())
      all.insert(entry.path().filename().string());
  for (const std::string& name : all) {
    const std::string stem = name.substr(0, name.find('.'));
    auto role = datasets::role_of_name(stem);
    if (!role) role = datasets::role_of_name(stem.substr(0, stem.find('-')));  // train-00000-of-00002
    const bool is_text = ending_of(name) == ".txt";
    if (role && !(is_text && has_folders))
      files.names[*role].push_back(name);
    else if (!is_text && !has_folders)
      files.others.push_back(name);
  }
  return files;
}

/// Paths of the roles, and what is left out.
struct RolePaths {
  fs::path train, first, val, test;  // first: the file to look at
  std::vector<std::string> notes = {};
};

RolePaths paths_in(const fs::path& folder) {
  const RoleFiles files = files_in(folder);
  std::vector<std::string> all = files.others;
  for (const auto& [role, names] : files.names) all.insert(all.end(), names.begin(), names.end());
  RolePaths paths;
  const auto path_of = [&](data::Split role) {
    const auto found = files.names.find(role);
    if (found == files.names.end()) return fs::path();
    const auto& names = found->second;
    const bool is_one = names.size() == 1 || std::ranges::any_of(names, [&](const auto& name) {
                          return ending_of(name) != ending_of(names[0]);
                        });
    const std::string pattern = is_one ? "" : pattern_of(names, all);
    if (!pattern.empty()) return folder / pattern;
    for (size_t i = 1; i < names.size(); ++i) paths.notes.push_back(names[i] + " is not read: " + names[0] + " is");
    return folder / names[0];
  };
  paths.train = path_of(data::Split::train);
  if (files.names.contains(data::Split::train)) paths.first = folder / files.names.at(data::Split::train)[0];
  paths.val = path_of(data::Split::val);
  paths.test = path_of(data::Split::test);
  if (paths.train.empty() && files.names.empty() && files.others.size() == 1)
    paths.train = paths.first = folder / files.others[0];
  else if (!paths.train.empty())
    for (const std::string& name : files.others) paths.notes.push_back(name + " is not read: its name says no use");
  else if (!all.empty() && datasets::folders_within(folder.string()).empty())
    throw Error(ExitCode::usage, {.what = "no file says by its name that it is to be learned; the first is " + all[0],
                                  .where = folder.string(),
                                  .hint = "call it train" + fs::path(all[0]).extension().string() +
                                          ", or name the file: gputrain init " + (folder / all[0]).string()});
  if (paths.val.empty() && !paths.test.empty()) {
    paths.notes.emplace_back(kTestForVal);
    paths.val = std::exchange(paths.test, {});
  }
  return paths;
}

[[noreturn]] void refuse_records(const fs::path& file) {
  const std::string columns = records::column_names_of(file.string());
  const std::string ending = lower_case(file.extension().string());
  const bool is_table = ending == ".csv" || ending == ".tsv";
  throw Error(ExitCode::usage,
              {.what = "what is learned of these records is not known" +
                       (columns.empty() ? ""
                                        : "; their columns are " + printable(columns.substr(0, 200)) +
                                              (is_table ? ", as the first row is taken for names" : "")),
               .where = file.string(),
               .hint = "columns such as messages; prompt with completion, or with chosen and rejected; text with "
                       "label; tokens with tags; query with document; image with label. `gputrain init --list` shows "
                       "jobs to begin with, whose data.text.columns names others" +
                       std::string(is_table ? ", by number if there is no row of names: {text: 0, label: 1}" : "")});
}

/// Finds lists of images, records and plain texts, in a file or in a folder's files that are named by their roles;
/// empty train: there are none.
FoundData look_at_lists(const fs::path& data, bool for_encoder) {
  const RolePaths paths = fs::is_directory(data) ? paths_in(data) : RolePaths{.train = data, .first = data};
  if (paths.train.empty()) return {};
  const auto group = [](const fs::path& path) {
    return path.empty() ? "" : "{path: " + in_quotes(path.string()) + "}";
  };
  FoundData found{.train = {},
                  .val = paths.val.empty() ? "{split: 10%}" : group(paths.val),
                  .test = group(paths.test),
                  .notes = paths.notes};
  const auto train_of = [&](const std::string& format) {
    return "{path: " + in_quotes(paths.train.string()) + ", format: " + format + "}";
  };
  const std::string first = paths.first.string();
  if (const auto list = records::image_list_in(first)) {
    found.train = train_of(list->format);
    if (list->image != "image" || list->label != "label")
      found.image = "columns: {image: " + in_quotes(list->image) + ", label: " + in_quotes(list->label) + "}";
  } else if ((found.records = records::found_records(first, for_encoder))) {
    found.train = train_of(found.records->format);
    if (found.records->has_no_names)
      found.notes.push_back("the first row is a record, not names of columns: the columns are numbered");
  } else if (lower_case(paths.first.extension().string()) == ".txt") {
    found.train = train_of("text");
    found.is_text = true;
  } else if (records::has_records(first)) {
    refuse_records(paths.first);
  }
  return found;
}

/// Recognises a folder with a folder for each class, or one for each role with those inside.
FoundData look_at_folder(const fs::path& data, bool for_encoder) {
  const std::string path = in_quotes(data.string());
  if (FoundData masks = look_for_masks(data); !masks.train.empty()) return masks;
  if (has_idx_files(data)) return {.train = "{path: " + path + ", format: idx}", .val = "{path: " + path + "}"};
  const datasets::RoleNames roles(datasets::folders_within(data.string()));
  // A folder train without folders inside may be a class of vehicles.
  if (roles.train.empty() || datasets::folders_within((data / roles.train).string()).empty()) {
    if (FoundData lists = look_at_lists(data, for_encoder); !lists.train.empty()) return lists;
    return {.train = "{path: " + path + ", format: imagefolder}", .val = "{split: 10%}"};
  }
  const auto folder = [&](const std::string& name) { return in_quotes((data / name).string()); };
  FoundData found{.train = "{path: " + folder(roles.train) + ", format: imagefolder}",
                  .val = roles.evaluated().empty() ? "{split: 10%}" : "{path: " + folder(roles.evaluated()) + "}"};
  if (!roles.val.empty() && !roles.test.empty()) found.test = "{path: " + folder(roles.test) + "}";
  if (roles.val.empty() && !roles.test.empty()) found.notes.emplace_back(kTestForVal);
  return found;
}

}  // namespace

FoundData look_at(const fs::path& data, bool for_encoder) {
  if (!fs::exists(data)) throw Error(ExitCode::data, {.what = "no such file or folder", .where = data.string()});
  if (fs::is_directory(data)) return look_at_folder(data, for_encoder);
  if (lower_case(data.extension().string()) == ".tar")
    return {.train = "{path: " + in_quotes(data.string()) + ", format: tar}", .val = "{split: 10%}"};
  if (FoundData lists = look_at_lists(data, for_encoder); !lists.train.empty()) return lists;
  throw Error(ExitCode::usage,
              {.what = "what this is is not known",
               .where = data.string(),
               .hint = "a folder with a folder of images for each class, or of images and their masks, a .tar of such "
                       "classes, IDX files, a table or JSON with records, CoNLL's words with tags, or a .txt file"});
}

std::string data_section(const FoundData& found, const std::string& image, const std::string& text) {
  const std::string whole = found.image.empty() ? image : with_key(image.empty() ? "{}" : image, found.image);
  const double bad = found.records ? found.records->max_bad_fraction : 0;
  return "\n  train: " + found.train + "\n  val: " + found.val + (found.test.empty() ? "" : "\n  test: " + found.test) +
         (bad > 0 ? fmt::format("\n  max_bad_fraction: {}", bad) : "") + (whole.empty() ? "" : "\n  image: " + whole) +
         (text.empty() ? "" : "\n  text: " + text);
}

}  // namespace gputrain::app
