#include "layers.hpp"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <unordered_map>
#include <utility>

#include "values/path_value.hpp"
#include "yaml/scalar.hpp"
#include "yaml/source.hpp"
#include "yaml/syntax_errors.hpp"

namespace gputrain::config {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxIncludeDepth = 16;
constexpr size_t kMaxFiles = 64;
constexpr std::string_view kIncludeKey = "include";

std::string identity_of(const fs::path& path) {
  std::error_code error;
  const fs::path canonical = fs::weakly_canonical(path, error);
  return error ? path.lexically_normal().string() : canonical.string();
}

class FileReader {
 public:
  FileReader(const Environment& environment, Budget& budget, Problems& problems)
      : environment_(environment), budget_(budget), problems_(problems) {}

  std::optional<Node> read(const fs::path& path, const SourceLocation& asked_by) {
    if (!may_open(path, asked_by)) return std::nullopt;
    const auto source = read_source(path, asked_by, problems_);
    if (!source) return std::nullopt;
    return read(source, path);
  }

  std::optional<Node> read(const std::shared_ptr<const Source>& source, const fs::path& path) {
    const size_t before = problems_.count();
    std::optional<Node> own = parse_yaml(source, budget_, problems_);
    if (own && own->kind == Node::Kind::null) own = Node{.kind = Node::Kind::map, .location = own->location};
    if (!own || own->kind != Node::Kind::map) {
      if (own)
        problems_.add(own->location, "a job is a map of keys and values", "begin with a line such as `name: my-run`");
      if (const auto other = other_language(source->name, source->text)) {
        problems_.keep(before);
        problems_.add({source, 0, 0}, other->what, other->hint);
      }
      return std::nullopt;
    }
    if (own->replaces)
      problems_.add(own->location, "!replace is for a group of keys, and this is a whole job",
                    "leave it out, and the include too");
    open_.push_back(identity_of(path));
    Node merged = with_includes(std::move(*own), path.parent_path());
    open_.pop_back();
    return merged;
  }

  /// Returns whether every included file could be read.
  bool has_read_all() const noexcept { return has_read_all_; }

 private:
  bool may_open(const fs::path& path, const SourceLocation& asked_by) {
    if (std::find(open_.begin(), open_.end(), identity_of(path)) != open_.end()) {
      problems_.add(asked_by, "the included file " + shown(path.string()) + " includes this one again",
                    "remove one of the two includes");
      return false;
    }
    if (open_.size() >= kMaxIncludeDepth) {
      problems_.add(asked_by, "includes nested more than 16 deep");
      return false;
    }
    if (++files_ > kMaxFiles) {
      problems_.add(asked_by, "more than 64 files are included");
      return false;
    }
    return true;
  }

  Node with_includes(Node own, const fs::path& folder) {
    Node merged{.kind = Node::Kind::map, .location = own.location};
    if (Node* include = own.find(kIncludeKey)) {
      for (const Node& name : names_in(*include)) {
        std::optional<Node> layer = read_named(name, folder);
        has_read_all_ = has_read_all_ && layer;
        if (layer) merge(merged, std::move(*layer));
      }
      own.parts.erase(own.parts.begin() + (include - own.parts.data()));
    }
    merge(merged, std::move(own));
    return merged;
  }

  std::optional<Node> read_named(const Node& name, const fs::path& folder) {
    if (name.kind != Node::Kind::scalar || name.text.empty()) {
      problems_.add(name.location, "`include` takes the name of a file, or a list of them",
                    "as in `include: [base/imagenet.yaml]`");
      return std::nullopt;
    }
    if (name.text.find("${") != std::string::npos) {
      problems_.add(name.location, "`include` cannot contain ${...}: includes are read first", "write the whole path");
      return std::nullopt;
    }
    const Parsed<std::string> path = parse_path(name.text, environment_);
    if (path.value) return read((folder / *path.value).lexically_normal(), name.location);
    problems_.add(name.location, "include: " + path.problem, path.hint);
    return std::nullopt;
  }

  static std::vector<Node> names_in(const Node& include) {
    if (include.kind == Node::Kind::list) return include.parts;
    if (include.kind == Node::Kind::null) return {};
    return {include};
  }

  const Environment& environment_;
  Budget& budget_;
  Problems& problems_;
  std::vector<std::string> open_;  // canonical paths, from the job file to the innermost include
  size_t files_ = 0;
  bool has_read_all_ = true;
};

std::vector<std::string> split_path(std::string_view dotted) {
  std::vector<std::string> names{{}};
  for (const char c : dotted) {
    if (c == '.') {
      names.emplace_back();
    } else {
      names.back() += c;
    }
  }
  return names;
}

/// Reads `a.b=3` as the map {a: {b: 3}}; `found_in` names its origin if that is not the command line.
std::optional<Node> read_setting(const std::string& argument, const fs::path& found_in, Budget& budget,
                                 Problems& problems) {
  const size_t equals = argument.find('=');
  auto source = std::make_shared<Source>();
  source->kind = Source::Kind::command_line;
  source->text = argument;
  source->name = found_in.empty() ? "--set " + argument.substr(0, equals) : found_in.string();
  if (equals == std::string::npos) {
    problems.add({source, 0, 0}, "there is no value", "write --set train.max_steps=100");
    return std::nullopt;
  }
  if (!is_clean(source, problems)) return std::nullopt;
  source->text = argument.substr(equals + 1);
  if (source->text.find_first_not_of(' ') == std::string::npos) {  // probably an unset shell variable
    problems.add({source, 0, 0}, "there is no value after the '='", "write one; null removes the file's value");
    return std::nullopt;
  }
  const std::vector<std::string> path = split_path(std::string_view(argument).substr(0, equals));
  if (path.size() > kMaxDepth || std::find(path.begin(), path.end(), "") != path.end()) {
    problems.add({source, 0, 0}, "the key is not of the form a.b.c", "write --set train.max_steps=100");
    return std::nullopt;
  }
  if (path[0] == kIncludeKey) {
    problems.add({source, 0, 0}, "`include` belongs in a file", "change single values with --set");
    return std::nullopt;
  }
  std::optional<Node> value = parse_yaml(source, budget, problems);
  if (!value) return std::nullopt;
  for (auto name = path.rbegin(); name != path.rend(); ++name) {
    value->key = *name;
    value->key_location = {source, 0, 0};
    Node outer{.kind = Node::Kind::map, .location = {source, 0, 0}};
    outer.parts.push_back(std::move(*value));
    value = std::move(outer);
  }
  return value;
}

}  // namespace

void merge(Node& base, Node over) {
  if (base.kind != Node::Kind::map || over.kind != Node::Kind::map || over.replaces) {
    over.removes = over.kind == Node::Kind::null && (base.kind != Node::Kind::null || base.removes);
    base = std::move(over);
    return;
  }
  std::unordered_map<std::string, size_t> places;
  for (size_t i = 0; i < base.parts.size(); ++i) places.emplace(base.parts[i].key, i);
  for (Node& part : over.parts) {
    const auto found = places.find(part.key);
    if (found == places.end()) {
      base.parts.push_back(std::move(part));
    } else {
      merge(base.parts[found->second], std::move(part));
    }
  }
}

std::optional<Layers> read_layers(const Request& request, Budget& budget, Problems& problems) {
  FileReader reader(request.environment, budget, problems);
  std::optional<Node> job = Node{.kind = Node::Kind::map};
  if (request.text) {
    auto source = std::make_shared<Source>();
    source->name = request.file.empty() ? "job" : request.file.string();
    source->text = without_byte_order_mark(*request.text);
    job = reader.read(source, request.file);
  } else if (!request.file.empty()) {
    job = reader.read(request.file.lexically_normal(), {});
  }
  if (!job) return std::nullopt;
  Layers layers{.job = std::move(*job), .is_whole = reader.has_read_all()};
  const auto put_on_top = [&](const std::vector<std::string>& set, const fs::path& found_in) {
    for (const std::string& argument : set) {
      std::optional<Node> layer = read_setting(argument, found_in, budget, problems);
      layers.is_whole = layers.is_whole && layer;
      if (layer) merge(layers.job, std::move(*layer));
    }
  };
  put_on_top(request.set, {});
  put_on_top(request.found.set, request.found.file);
  return layers;
}

}  // namespace gputrain::config
