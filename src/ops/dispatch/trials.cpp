#include "trials.hpp"

#include <algorithm>
#include <array>
#include <fstream>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <fmt/format.h>

namespace gputrain::ops {
namespace {

using File = std::unique_ptr<Descriptor>;

/// Returns a new or existing file that this process has locked; null if that fails.
File locked(const std::filesystem::path& path) {
  auto file = std::make_unique<Descriptor>(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (file->get() < 0 || ::flock(file->get(), LOCK_EX | LOCK_NB) != 0) return nullptr;
  return file;
}

/// Locks the folder for a process that makes or takes marks; null if another one, perhaps stopped, holds it for long.
File lock_of(const std::filesystem::path& folder) {
  constexpr int kTries = 100;
  constexpr std::chrono::milliseconds kBetween{20};
  for (int i = 0; i < kTries; ++i) {
    if (File lock = locked(folder / "lock")) return lock;
    std::this_thread::sleep_for(kBetween);
  }
  return nullptr;
}

/// Begins the names of this host's marks. On a file system whose locks hold on one host alone, those of other hosts
/// look as if their processes had ended.
std::string host_prefix() {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  return std::string(host.data()) + "-";
}

std::string own_name() {
  const auto now = std::chrono::system_clock::now().time_since_epoch().count();  // containers may share a process id
  return fmt::format("{}{}-{}.trial", host_prefix(), ::getpid(), now);
}

}  // namespace

Trials::Trials(std::filesystem::path marks) : folder_(std::move(marks)) {}

Trials::~Trials() {
  if (!mark_) return;
  std::error_code ignored;
  std::filesystem::remove(mark_path_, ignored);
}

void Trials::take_interrupted(const std::function<void(const std::vector<std::string>&)>& take) {
  std::error_code missing;
  if (folder_.empty() || !std::filesystem::is_directory(folder_, missing)) return;
  const auto lock = lock_of(folder_);
  if (!lock) return;
  const std::string prefix = host_prefix();
  std::vector<std::string> found;
  std::vector<std::filesystem::path> taken;
  for (const auto& entry : std::filesystem::directory_iterator(folder_, missing)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(prefix) || !name.ends_with(".trial") || locked(entry.path()) == nullptr) continue;
    taken.push_back(entry.path());
    std::ifstream file(entry.path());
    std::string mark;
    const bool is_new = std::getline(file, mark) && std::find(found.begin(), found.end(), mark) == found.end();
    if (is_new) found.push_back(std::move(mark));
  }
  if (!found.empty()) take(found);
  for (const auto& path : taken) std::filesystem::remove(path, missing);
}

/// Ends a trial in its destructor.
class Trials::Running {
 public:
  Running(Trials& trials, std::string mark) : trials_(trials), mark_(std::move(mark)) {}
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
  ~Running() { trials_.end(mark_); }

 private:
  Trials& trials_;
  std::string mark_;
};

std::shared_ptr<void> Trials::begin(const std::string& name, const std::string& mark) {
  const std::lock_guard lock(mutex_);
  if (running_.empty()) began_ = std::chrono::steady_clock::now();
  running_.push_back(mark);
  ++done_.count;
  write_mark();
  if (listener_) listener_(done_.count, name);
  return std::make_shared<Running>(*this, mark);
}

void Trials::end(const std::string& mark) {
  const std::lock_guard lock(mutex_);
  const auto last = std::find(running_.rbegin(), running_.rend(), mark);
  if (last != running_.rend()) running_.erase(std::next(last).base());
  if (running_.empty())
    done_.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
  write_mark();
}

void Trials::set_listener(std::function<void(int64_t, std::string_view)> listener) {
  const std::lock_guard lock(mutex_);
  listener_ = std::move(listener);
}

Trials::Done Trials::done() const {
  const std::lock_guard lock(mutex_);
  return done_;
}

/// Opens the mark under the folder's lock: an unlocked file would be taken for one of a process that ended.
void Trials::open_mark() {
  mark_path_ = folder_ / own_name();
  std::error_code ignored;
  std::filesystem::create_directories(folder_, ignored);
  const auto lock = lock_of(folder_);
  if (lock) mark_ = locked(mark_path_);
}

void Trials::write_mark() {
  if (folder_.empty()) return;
  if (mark_path_.empty()) open_mark();
  if (!mark_) return;
  const std::string text = running_.empty() ? "" : running_.back() + "\n";
  // Without the text a crash is not recognised; the trial runs all the same.
  const bool is_written = ::ftruncate(mark_->get(), 0) == 0 && ::pwrite(mark_->get(), text.data(), text.size(), 0) >= 0;
  static_cast<void>(is_written);
}

}  // namespace gputrain::ops
