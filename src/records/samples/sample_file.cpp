#include "sample_file.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iomanip>
#include <sstream>
#include <utility>

#include "../tokens/encoded_texts.hpp"
#include "gputrain/config/load.hpp"
#include "gputrain/core/atomic_file.hpp"
#include "gputrain/core/descriptor.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/core/random.hpp"
#include "gputrain/data/content_hash.hpp"
#include "gputrain/data/signature.hpp"

namespace gputrain::records {
namespace {

namespace fs = std::filesystem;
using HeaderJson = nlohmann::json;

constexpr char kMagic[] = "gputrain samples 1\n";
constexpr int64_t kLeastBytes = int64_t{16} << 20;  // bytes of text that are worth a file
constexpr size_t kAligned = 64;

/// File as memory that processes share. Nobody changes it: a new one takes its name.
class Mapping {
 public:
  Mapping(const Descriptor& file, size_t size)
      : size_(size), begin_(::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.get(), 0)) {}
  ~Mapping() {
    if (is_good()) ::munmap(begin_, size_);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  bool is_good() const { return begin_ != MAP_FAILED; }
  std::string_view text() const { return {static_cast<const char*>(begin_), size_}; }

 private:
  size_t size_;
  void* begin_;
};

/// Samples with the file that they are in.
struct MappedSamples {
  std::unique_ptr<Mapping> file;
  MadeSamples made;
};

/// Calls `visit` with each array, in the order of the file.
template <class Made, class Visit>
void each_array(Made& made, const Visit& visit) {
  for (auto& stream : made.streams) {
    visit(stream.values);
    visit(stream.ends);
  }
  visit(made.seconds);
  visit(made.numbers);
}

HeaderJson header_of(const std::string& key, const MadeSamples& made) {
  HeaderJson sizes = HeaderJson::array(), problems = HeaderJson::array();
  each_array(made, [&](const auto& array) { sizes.push_back(array.size()); });
  for (const auto& [index, problem] : made.problems) problems.push_back({index, problem.what, problem.where});
  return {{"key", key},
          {"sizes", sizes},
          {"streams", made.streams.size()},
          {"columns", made.columns},
          {"problems", problems},
          {"classes", made.classes},
          {"has_more", made.has_more},
          {"is_chat", made.is_chat},
          {"longest", made.longest},
          {"cut", {made.cut, made.longest_uncut}},
          {"bad", {made.bad.count, made.bad.of, made.bad.first_what, made.bad.first_where}},
          {"files", made.files},
          {"unread", made.unread},
          {"warnings", made.warnings}};
}

void read_header(const HeaderJson& header, MadeSamples& made) {
  made.streams.resize(header.at("streams").get<size_t>());
  made.columns = header.at("columns");
  for (const HeaderJson& problem : header.at("problems"))
    made.problems[problem.at(0)] = {problem.at(1).get<std::string>(), problem.at(2).get<std::string>()};
  made.classes = header.at("classes").get<std::vector<std::string>>();
  made.has_more = header.at("has_more");
  made.is_chat = header.at("is_chat");
  made.longest = header.at("longest");
  made.cut = header.at("cut").at(0);
  made.longest_uncut = header.at("cut").at(1);
  const HeaderJson& bad = header.at("bad");
  made.bad = {bad.at(0), bad.at(1), bad.at(2), bad.at(3)};
  made.files = header.at("files");
  made.unread = header.at("unread");
  made.warnings = header.at("warnings").get<std::vector<std::string>>();
}

size_t aligned(size_t at) { return (at + kAligned - 1) / kAligned * kAligned; }

/// Sets the arrays to those of the file. Returns whether it has exactly them.
bool view_arrays(const HeaderJson& header, std::string_view file, size_t at, MadeSamples& made) {
  size_t number = 0;
  bool fits = true;
  each_array(made, [&](auto& array) {
    using Value = std::decay_t<decltype(array[0])>;
    const auto count = header.at("sizes").at(number++).get<size_t>();
    at = aligned(at);
    fits = fits && at <= file.size() && count <= (file.size() - at) / sizeof(Value);
    if (!fits) return;
    array.view({reinterpret_cast<const Value*>(file.data() + at), count});
    at += count * sizeof(Value);
  });
  return fits && at == file.size();
}

/// Returns whether the arrays agree, so that no sample lies outside them.
bool are_consistent(const MadeSamples& made) {
  const int64_t size = made.size();
  const bool has_targets = made.columns >= 0 && made.numbers.size() == size * made.columns;
  return has_targets && made.seconds.size() == size &&
         std::ranges::all_of(made.streams, [&](const MadeSamples::Stream& stream) {
           const auto ends = stream.ends.values();
           return std::ssize(ends) == size && std::ranges::is_sorted(ends) &&
                  (ends.empty() || (ends.front() >= 0 && ends.back() == stream.values.size()));
         });
}

/// Returns the bytes of a file, for keys. Tokenizers' files are small.
std::string content_of_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream content;
  content << file.rdbuf();
  return content.str();
}

/// Returns the files from which a tokenizer and its templates are read. Its folder may hold many others.
std::string content_of_tokenizer(const tokenizers::Tokenizer& tokenizer) {
  const fs::path folder = tokenizer.folder();
  if (folder.empty()) return "";
  std::vector<fs::path> files{tokenizer.source()};
  for (const char* name :
       {"tokenizer.json", "tekken.json", "vocab.json", "merges.txt", "vocab.txt", "tokenizer_config.json",
        "special_tokens_map.json", "added_tokens.json", "chat_template.jinja", "chat_template.json"})
    files.push_back(folder / name);
  const auto add_all_of = [&files](const fs::path& where, const auto& is_wanted) {
    std::vector<fs::path> found;
    std::error_code ignored;
    for (fs::directory_iterator entry(where, ignored), end; entry != end; entry.increment(ignored))
      if (is_wanted(entry->path().extension())) found.push_back(entry->path());
    std::ranges::sort(found);
    files.insert(files.end(), found.begin(), found.end());
  };
  add_all_of(folder / "additional_chat_templates", [](const fs::path& ending) { return ending == ".jinja"; });
  if (tokenizer.source().empty())
    add_all_of(folder, [](const fs::path& ending) { return ending == ".model" || ending == ".tiktoken"; });
  std::string content;
  for (const fs::path& file : files) content += file.filename().string() + content_of_file(file);
  return content;
}

constexpr size_t kDigits = 16;  // digits of a hash

std::string digits(std::string_view text) {
  std::ostringstream out;
  out << std::hex << std::setfill('0') << std::setw(kDigits) << stable_hash(text);
  return out.str();
}

/// Returns whether a file's name begins with a key as samples_key() makes it. The folder may have other files as well.
bool is_ours(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.find('.') == 2 * kDigits && name.find_first_not_of("0123456789abcdef") == 2 * kDigits &&
         (name.find(".samples") == 2 * kDigits || name.find(".lock") == 2 * kDigits);
}

std::string facts_of_file(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return path;
  const data::ReadOnlyFile file(path);
  std::ostringstream facts;
  facts << fs::absolute(path).string() << ' ' << status.st_size << ' ' << status.st_mtim.tv_sec << '.'
        << status.st_mtim.tv_nsec << ' ' << data::content_hash(1, [&](int64_t) { return data::content_of(file); });
  return facts.str();
}

/// Identifies the library that this code is in: another may make other samples.
std::string facts_of_program() {
  Dl_info info{};
  struct stat status {};
  if (::dladdr(reinterpret_cast<const void*>(&samples_folder), &info) == 0 || ::stat(info.dli_fname, &status) != 0)
    return "";
  std::ostringstream facts;
  facts << info.dli_fname << ' ' << status.st_size << ' ' << status.st_mtim.tv_sec << '.' << status.st_mtim.tv_nsec;
  return facts.str();
}

/// Waits while another process holds the lock; the lock ends with that process in any case.
std::unique_ptr<const Descriptor> locked(const fs::path& path) {
  auto file = std::make_unique<const Descriptor>(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (file->get() < 0) return nullptr;
  while (::flock(file->get(), LOCK_EX) != 0)
    if (errno != EINTR) return nullptr;
  return file;
}

/// Removes the files that were not used for longest, and leftovers of killed processes.
void remove_old(const fs::path& folder, const fs::path& keep, int64_t most_bytes) {
  struct File {
    fs::path path;
    fs::file_time_type used;
    int64_t size = 0;
  };
  std::vector<File> files;
  int64_t sum = 0;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (!is_ours(entry.path())) continue;
    const auto size = static_cast<int64_t>(entry.file_size(ignored));
    const auto used = entry.last_write_time(ignored);
    if (entry.path().extension() != ".samples") {
      if (fs::file_time_type::clock::now() - used > std::chrono::hours(24)) fs::remove(entry.path(), ignored);
      continue;
    }
    files.push_back({entry.path(), used, size});
    sum += size;
  }
  std::ranges::sort(files, {}, &File::used);
  for (const File& file : files) {
    if (sum <= most_bytes) return;
    if (file.path == keep) continue;
    fs::remove(file.path, ignored);
    sum -= file.size;
  }
}

}  // namespace

fs::path samples_folder() {
  if (const char* given = std::getenv("GPUTRAIN_SAMPLES")) return given;
  const char *caches = std::getenv("XDG_CACHE_HOME"), *home = std::getenv("HOME");
  if (caches != nullptr && *caches != '\0') return fs::path(caches) / "gputrain" / "samples";
  return home != nullptr && *home != '\0' ? fs::path(home) / ".cache" / "gputrain" / "samples" : fs::path();
}

std::string samples_key(const data::DatasetRequest& request, const std::string& format,
                        const std::vector<std::string>& files, const tokenizers::Tokenizer* tokenizer, int64_t most) {
  if (tokenizer == nullptr || is_tokenizer_built_from_texts(request)) return "";
  const data::TextOptions options = request.text != nullptr ? *request.text : data::TextOptions();
  if (tokenizer->folder().empty() && options.tokenizer.name != "bytes") return "";  // its files are not known
  int64_t bytes = 0;
  std::error_code ignored;
  for (const std::string& file : files) bytes += static_cast<int64_t>(fs::file_size(file, ignored));
  if (bytes < kLeastBytes) return "";
  std::ostringstream all;
  all << kMagic << facts_of_program() << '\n'
      << format << '\n'
      << config::to_yaml(config::schema_of<data::TextOptions>(), &options) << request.model.target.name() << ' '
      << request.sequence_length << ' ' << most << ' ' << tokenizer->vocabulary_size() << ' '
      << tokenizer->source().string() << '\n';
  const std::string templates =
      content_of_tokenizer(*tokenizer) + (options.chat_template ? content_of_file(*options.chat_template) : "");
  if (templates.find("strftime_now") != templates.npos) return "";
  all << digits(templates) << '\n';
  for (const std::string& file : files) all << facts_of_file(file) << '\n';
  if (request.train != nullptr) all << request.train->text();
  return digits(all.str()) + digits("again" + all.str());
}

void write_samples(const fs::path& path, const std::string& key, const MadeSamples& made) {
  const fs::path own = path.string() + "." + std::to_string(::getpid());  // another process may write as well
  AtomicFile file(own, ExitCode::environment);
  const std::string header = header_of(key, made).dump(-1, ' ', false, HeaderJson::error_handler_t::replace);
  const uint64_t length = header.size();
  file.write(kMagic);
  file.write(&length, sizeof length);
  file.write(header);
  size_t at = sizeof kMagic - 1 + sizeof length + header.size();
  each_array(made, [&](const auto& array) {
    static constexpr char kZeros[kAligned] = {};
    file.write(kZeros, aligned(at) - at);
    const auto bytes = std::as_bytes(array.values());
    file.write(bytes.data(), bytes.size());
    at = aligned(at) + bytes.size();
  });
  file.commit();
  fs::rename(own, path);
}

std::shared_ptr<const MadeSamples> mapped_samples(const fs::path& path, const std::string& key) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status {};
  if (file.get() < 0 || ::fstat(file.get(), &status) != 0 || status.st_size == 0) return nullptr;
  auto samples = std::make_shared<MappedSamples>();
  samples->file = std::make_unique<Mapping>(file, static_cast<size_t>(status.st_size));
  if (!samples->file->is_good()) return nullptr;
  const std::string_view text = samples->file->text();
  size_t at = sizeof kMagic - 1;
  uint64_t length = 0;
  if (text.size() < at + sizeof length || !text.starts_with(kMagic)) return nullptr;
  std::memcpy(&length, text.data() + at, sizeof length);
  at += sizeof length;
  if (length > text.size() - at) return nullptr;
  try {
    const HeaderJson header = HeaderJson::parse(text.substr(at, length));
    if (header.at("key") != key) return nullptr;
    read_header(header, samples->made);
    if (!view_arrays(header, text, at + length, samples->made) || !are_consistent(samples->made)) return nullptr;
  } catch (const HeaderJson::exception&) {
    return nullptr;
  }
  ::futimens(file.get(), nullptr);  // marks it as used now
  return {samples, &samples->made};
}

std::shared_ptr<const MadeSamples> shared_samples(const fs::path& folder, const std::string& key,
                                                  const std::function<MadeSamples()>& make, int64_t most_bytes) {
  if (folder.empty() || key.empty()) return std::make_shared<const MadeSamples>(make());
  std::error_code failed;
  if (fs::create_directories(folder, failed)) fs::permissions(folder, fs::perms::owner_all, failed);
  const fs::path path = folder / (key + ".samples");
  if (auto samples = mapped_samples(path, key)) return samples;
  const auto lock = locked(folder / (key + ".lock"));
  if (auto samples = mapped_samples(path, key)) return samples;
  auto made = std::make_shared<const MadeSamples>(make());
  if (lock == nullptr) return made;
  try {
    write_samples(path, key, *made);
  } catch (const std::exception& failure) {
    log::info(std::string("samples stay in the memory of each process: ") + failure.what());
    return made;
  }
  remove_old(folder, path, most_bytes);
  fs::remove(folder / (key + ".lock"), failed);
  auto samples = mapped_samples(path, key);
  return samples != nullptr ? samples : made;
}

}  // namespace gputrain::records
