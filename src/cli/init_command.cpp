// Command `gputrain init`: writes a job for data that it looks at.
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "commands.hpp"
#include "gputrain/core/atomic_file.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/lower_case.hpp"
#include "gputrain/core/printable.hpp"
#include "gputrain/datasets/roles.hpp"
#include "gputrain/job/job.hpp"
#include "gputrain/monitor/console.hpp"
#include "gputrain/records/image_list.hpp"
#include "gputrain/setup/training_setup.hpp"

namespace gputrain::app {
namespace {

namespace fs = std::filesystem;

/// Lines of `data:`, and the kind of the data.
struct FoundData {
  std::string train, val;
  std::string image = {};  // keys of its section `image`: the columns of a list
  bool is_text = false;
};

std::string in_quotes(const std::string& text) {
  std::string yaml = "'";
  for (const char c : text) yaml += c == '\'' ? "''" : std::string(1, c);
  return yaml + "'";
}

bool has_folder(const fs::path& folder, const std::string& name) { return fs::is_directory(folder / name); }

bool has_idx_files(const fs::path& folder) {
  return std::ranges::any_of(fs::directory_iterator(folder), [](const fs::directory_entry& entry) {
    return entry.path().filename().string().starts_with("train-images");
  });
}

/// Refuses masks: their number of classes is not known without reading all of them.
void refuse_masks(const fs::path& data) {
  for (const auto& [images, masks] : {std::pair("images", "masks"), {"JPEGImages", "SegmentationClass"}}) {
    for (const fs::path& folder : {data, data / "train"})
      if (has_folder(folder, images) && has_folder(folder, masks))
        throw Error(ExitCode::usage,
                    {.what = "these are images with masks, and how many classes those have is not known",
                     .where = folder.string(),
                     .hint = "begin with the repository's configs/segmentation.yaml"});
  }
}

/// Finds lists of images, in a file or in a folder's files that are named by their roles; empty train: there is none.
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
  const auto list = records::image_list_in(train.string());
  if (!list) return {};
  FoundData found{.train = "{path: " + in_quotes(train.string()) + ", format: " + list->format + "}",
                  .val = val.empty() ? "{split: 10%}" : "{path: " + in_quotes(val.string()) + "}"};
  if (list->image != "image" || list->label != "label")
    found.image = "columns: {image: " + in_quotes(list->image) + ", label: " + in_quotes(list->label) + "}";
  return found;
}

/// Recognises a folder with a folder for each class, or one for each role with those inside.
FoundData look_at_folder(const fs::path& data) {
  const std::string path = in_quotes(data.string());
  refuse_masks(data);
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

/// Recognises data by the names of files and folders; their content is checked when they are opened.
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
  throw Error(ExitCode::usage,
              {.what = is_table ? "what is learned of records is not known" : "what this is is not known",
               .where = data.string(),
               .hint = is_table ? "begin with one of the jobs of the repository: configs/bert_sst2.yaml for classes, "
                                  "configs/finetune_lora.yaml for conversations, configs/dpo.yaml for preferences"
                                : "a folder with a folder of images for each class, a .tar of such a folder, a table "
                                  "or JSON with the columns image and label, IDX files, or a .txt file"});
}

/// Writes the section `data`. `image`: the keys of data.image, without braces.
std::string data_section(const FoundData& found, std::string image) {
  if (!found.image.empty()) image += (image.empty() ? "" : ", ") + found.image;
  return "data:\n  train: " + found.train + "\n  val: " + found.val + "\n" +
         (image.empty() ? "" : "  image: {" + image + "}\n");
}

/// Derives a name for the run from that of the data.
std::string name_of(const fs::path& data) {
  const fs::path whole = fs::absolute(data).lexically_normal();
  std::string name = (whole.has_filename() ? whole : whole.parent_path()).stem().string();
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '-';
  return name.empty() ? "training" : name;
}

std::string text_job(const FoundData& found) {
  return "model: {type: gpt, config: {n_layer: 6, n_head: 6, n_embd: 384, block_size: 256, dropout: 0.2}}\n" +
         data_section(found, "") +
         "train: {max_steps: 5000, global_batch_size: 64, max_grad_norm: 1.0}\n"
         "optimizer: {type: adamw, lr: 1e-3, betas: [0.9, 0.99], weight_decay: 0.1}\n"
         "lr_scheduler: {type: cosine, warmup: 2%, min_lr: 1e-4}\n"
         "eval: {interval: 5%, sample: {max_new_tokens: 300}}\n";
}

/// Writes the job for images. `size`: that of the images if all have the same; 0: they differ.
std::string image_job(const FoundData& found, const data::ImageExtent& size, int64_t samples) {
  constexpr int64_t kSmall = 64, kUsual = 224, kMostKept = 512, kUsualBatch = 128, kFewBatches = 8;
  const int64_t shorter = std::min(size.height, size.width), longer = std::max(size.height, size.width);
  const bool is_small = shorter > 0 && longer <= kSmall;
  const bool keeps_shape = shorter < longer && longer <= kMostKept;
  const std::string used = keeps_shape ? fmt::format("[{}, {}]", size.height, size.width) : std::to_string(kUsual);
  const int64_t batch = std::clamp<int64_t>(samples / kFewBatches, 1, kUsualBatch);
  const bool is_idx = found.train.find("format: idx") != std::string::npos;
  const std::string small_image =
      is_idx ? "augment: {random_crop_padding: 2}"
             : "augment: {random_crop_padding: " + std::to_string(shorter / 8) + ", hflip: 0.5}";
  return std::string("model: {type: ") + (is_small ? "resnet18, config: {stem: cifar}" : "resnet50") + "}\n" +
         data_section(found,
                      is_small
                          ? small_image
                          : fmt::format("size: {}, augment: {{random_resized_crop: [0.25, 1.0], hflip: 0.5}}", used)) +
         fmt::format("train: {{max_epochs: 30, global_batch_size: {}, label_smoothing: 0.1}}\n", batch) +
         "optimizer: {type: sgd, lr: 0.1, lr_base_batch_size: 256, momentum: 0.9, weight_decay: 5e-4}\n"
         "lr_scheduler: {type: cosine, warmup: 5%}\n"
         "eval: {interval: 1ep}\n";
}

/// Opens the data of a job as a run would.
std::shared_ptr<const data::Dataset> opened(const std::string& job, const std::string& output) {
  const fs::path file = output + ".part";
  write_file_atomically(file, job, ExitCode::environment);
  struct Removed {
    fs::path file;
    ~Removed() {
      std::error_code ignored;
      fs::remove(file, ignored);
    }
  } const removed{file};
  return open_datasets(load_job({.file = file.string(), .set = {}, .output_dir = {}})).train;
}

/// Recognises a tar with folders of classes, or with train/ and others that have them inside.
FoundData inside_tar(const FoundData& whole, const fs::path& data, const std::string& head, const std::string& output) {
  const std::string path = in_quotes(data.string());
  const auto opens = [&](const FoundData& found) {
    try {
      opened(head + image_job(found, {}, 1), output);
      return true;
    } catch (const Error&) {
      return false;
    }
  };
  if (lower_case(data.extension().string()) != ".tar" || opens(whole)) return whole;
  const datasets::RoleNames roles(datasets::folders_within(data.string()));
  FoundData found{.train = "{path: " + path + ", format: tar, prefix: " + in_quotes(roles.train) + "}",
                  .val = "{split: 10%}"};
  if (roles.train.empty() || !opens(found)) return whole;
  for (const std::string& role : {roles.val, roles.test}) {
    if (role.empty()) continue;
    FoundData with_val = found;
    with_val.val = "{path: " + path + ", prefix: " + in_quotes(role) + "}";
    if (opens(with_val)) return with_val;
  }
  return found;
}

}  // namespace

int init_command(const InitRequest& request) {
  if (fs::exists(request.output))
    throw Error(ExitCode::usage, {.what = "exists already", .where = request.output, .hint = "another --output"});
  const std::string head = "schema: 1\nname: " + name_of(request.data) + "\n";
  const FoundData found = inside_tar(look_at(request.data), request.data, head, request.output);
  std::string body;
  if (found.is_text) {
    body = head + text_job(found);
  } else {
    data::ImageExtent size;
    int64_t samples = 0;
    try {
      const auto images = opened(head + image_job(found, {.height = 1, .width = 1}, 1), request.output);
      const auto& sizes = images->layout().input().sizes;
      size = {.height = sizes[0], .width = sizes[1]};
      samples = images->size();
    } catch (const Error& failure) {
      if (failure.code() != ExitCode::usage) throw;  // images of different sizes
      samples = opened(head + image_job(found, {}, 1), request.output)->size();
    }
    body = head + image_job(found, size, samples);
  }
  const auto data = opened(body, request.output);
  write_file_atomically(request.output,
                        "# Written by `gputrain init " + printable(request.data) + "`: " + printable(data->describe()) +
                            ".\n#   gputrain run " + printable(request.output) + "\n" + body,
                        ExitCode::environment);
  monitor::Console console(monitor::Console::detect(true));
  console.show("data", data->describe());
  console.show("job", request.output + "  a beginning; `gputrain run " + request.output + " --dry-run` checks it");
  return 0;
}

}  // namespace gputrain::app
