// Reads a job: file, includes, --set and ${...} become a checked struct, or one error with all mistakes.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gputrain/config/describe.hpp"
#include "gputrain/config/node.hpp"
#include "gputrain/config/problem.hpp"
#include "gputrain/core/error.hpp"

namespace gputrain::config {

/// Settings read from a file that is not a job, for example the sizes of a published model.
struct FoundSettings {
  std::filesystem::path file = {};
  std::vector<std::string> set = {};  // "model.config.n_layer=12"
};

/// Reads an environment variable by its name.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;

struct Request {
  std::filesystem::path file = {};       // empty: nothing but `set`
  std::optional<std::string> text = {};  // read instead of the file, which then only gives the name
  std::vector<std::string> set = {};     // "train.max_steps=100", later ones win
  FoundSettings found = {};              // overrides file, text and `set`
  Environment environment = {};          // empty: that of this process
  bool is_record = false;                // the file was written by this program, perhaps by another version of it
  std::vector<Problem> of_plugins = {};  // mistakes of plug-ins; names that no catalog has are then none
};

/// One key with its value as canonical text. A list is one setting.
struct Setting {
  std::string key;    // "optimizer.lr"
  std::string value;  // one line of YAML; "" if the job has no such key (only in differences)
  Change change = Change::refused;

  friend bool operator==(const Setting&, const Setting&) = default;
};

/// A checked job.
class Loaded {
 public:
  /// Facts about the text of the job that its values do not show, by dotted keys.
  struct Written {
    std::map<std::string, SourceLocation> origins = {};  // of a group by its key and a dot: "train."
    std::map<std::string, std::string> references = {};  // texts that had ${...} in them
    std::vector<std::string> hidden = {};                // texts with *** in the place of a secret
    std::vector<std::string> left_out = {};              // see Loaded::left_out()
  };
  Loaded(const Schema& schema, std::shared_ptr<const void> spec, Written written);

  template <class Spec>
  const Spec& as() const {
    GPUTRAIN_ASSERT(schema_ == &schema_of<Spec>(), "the job was loaded with another schema");
    return *static_cast<const Spec*>(spec_.get());
  }

  /// Returns the same job with a changed spec, for example with values that later code has determined.
  template <class Spec>
  Loaded with(Spec spec) const {
    GPUTRAIN_ASSERT(schema_ == &schema_of<Spec>(), "the job was loaded with another schema");
    return Loaded(*schema_, std::make_shared<const Spec>(std::move(spec)), written_);
  }

  /// Returns canonical YAML of every key in declaration order; reads back to the same values. In the place of a secret
  /// it has the ${...} that the secret came from, or else ***. With `origins`, each line ends in a comment with the
  /// origin of its value.
  std::string resolved_yaml(bool origins = false) const;

  /// Returns all settings in declaration order.
  std::vector<Setting> settings() const;

  /// Returns the place where the value of a dotted key was set: "job.yaml:3:5", "--set train.max_steps" or "default".
  std::string origin(const std::string& dotted) const;

  /// Returns the keys of a record that this version does not know and that have a value: they have no effect.
  const std::vector<std::string>& left_out() const noexcept { return written_.left_out; }

  /// Throws SpecError if a value has *** in the place of a secret, as in a job that this program has written.
  void require_secrets() const;

  /// Creates the error for a problem that only later code can see, at the place where the key was set.
  SpecError error(const std::string& dotted, std::string what, std::string hint = {}) const;
  /// The same for several problems.
  SpecError error(const SpecIssues& issues) const;

 private:
  const Schema* schema_;
  std::shared_ptr<const void> spec_;
  Written written_;
};

/// Reads and checks a job. Throws SpecError with all mistakes.
Loaded load(const Schema& schema, const Request& request);

/// Reads as much as it can of a job that may have mistakes: a key with a mistake may have its default.
Loaded load_despite_mistakes(const Schema& schema, const Request& request);

/// Returns all settings of any spec struct, in declaration order.
std::vector<Setting> settings_of(const Schema& schema, const void* spec);

/// Returns canonical YAML of any spec struct, as in job.resolved.yaml.
std::string to_yaml(const Schema& schema, const void* spec);

/// Returns the settings that two jobs must share to give the same results: all keys that are not `safe`, as "key:
/// value" lines. The run id is a hash of it.
std::string identity(const std::vector<Setting>& settings);

/// A key whose value differs between two jobs.
struct Difference {
  std::string key, before, after;  // value empty: the job has no such key
  Change change = Change::refused;
};
std::vector<Difference> differences(const std::vector<Setting>& before, const std::vector<Setting>& after);

}  // namespace gputrain::config
