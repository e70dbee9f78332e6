#include "gputrain/config/schema.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "gputrain/config/registrations.hpp"
#include "gputrain/core/error.hpp"

namespace gputrain::config {

Key::Key(std::string name, std::string help, const ValueType& type, Locate locate)
    : name_(std::move(name)), help_(std::move(help)), type_(&type), locate_(std::move(locate)) {}

Key& Key::range(double low, double high) {
  limits_.low = low;
  limits_.high = high;
  return *this;
}

Key& Key::above(double low) {
  limits_.low = low;
  limits_.low_is_open = true;
  return *this;
}

Key& Key::below(double high) {
  limits_.high = high;
  limits_.high_is_open = true;
  return *this;
}

Key& Key::at_least(double low) {
  limits_.low = low;
  return *this;
}

Key& Key::elements(size_t low, size_t high) {
  limits_.fewest = low;
  limits_.most = high;
  return *this;
}

Key& Key::choices(std::vector<std::string> allowed) {
  allowed_ = std::move(allowed);
  return *this;
}

Key& Key::units(std::vector<Length::Unit> allowed) {
  allowed_units_ = std::move(allowed);
  return *this;
}

Key& Key::path() {
  is_path_ = true;
  return *this;
}

Key& Key::mask_secrets() {
  masks_secrets_ = true;
  return *this;
}

Key& Key::required() {
  required_ = true;
  return *this;
}

Key& Key::change(Change change) {
  change_ = change;
  return *this;
}

Key& Key::aliases(std::vector<std::string> foreign) {
  for (std::string& name : foreign) foreign_.push_back({std::move(name), {}});
  return *this;
}

Key& Key::aliases(std::string foreign, Convert convert) {
  foreign_.push_back({std::move(foreign), std::move(convert)});
  return *this;
}

Key& Key::alias_flag(std::string foreign, std::string value) {
  return aliases(std::move(foreign), [value = std::move(value)](const std::string& given) {
    return given == "false" || given == "False" ? std::string() : value;
  });
}

Key& Key::unit(std::string unit) {
  unit_ = std::move(unit);
  return *this;
}

Key& Key::inherits(std::string dotted) {
  inherited_from_ = std::move(dotted);
  return *this;
}

Key Key::within(Locate find) const {
  Key key = *this;
  key.locate_ = [find = std::move(find), locate = locate_](void* outer) { return locate(find(outer)); };
  return key;
}

void SpecIssues::add(std::string key, std::string what, std::string hint) {
  issues_.push_back({std::move(key), std::move(what), std::move(hint)});
}

Schema::Schema(Create create) : create_(std::move(create)) {}

void Schema::set_summary(std::string text) { summary_ = std::move(text); }
void Schema::set_check(Check check) { check_ = std::move(check); }

Key& Schema::add(Key key) {
  GPUTRAIN_ASSERT(find(key.name()) == nullptr, "the key '" + key.name() + "' is declared twice");
  keys_.push_back(std::move(key));
  return keys_.back();
}

Key& Schema::add_choice(Key key, const AnyCatalog& catalog, std::string under) {
  choices_.push_back({keys_.size(), &catalog, std::move(under)});
  return add(std::move(key));
}

Key& Schema::add_pattern(Key key) {
  GPUTRAIN_ASSERT(!pattern_, "one pattern per struct");
  return pattern_.emplace(std::move(key));
}

const Schema::ChoiceKey* Schema::choice_of(const Key& key) const noexcept {
  for (const ChoiceKey& choice : choices_) {
    if (&keys_[choice.key] == &key) return &choice;
  }
  return nullptr;
}

const Key* Schema::find(std::string_view name) const noexcept {
  const auto found = std::find_if(keys_.begin(), keys_.end(), [name](const Key& key) { return key.name() == name; });
  return found == keys_.end() ? nullptr : &*found;
}

AnyCatalog::AnyCatalog(std::string kind) : kind_(std::move(kind)) {}
AnyCatalog::~AnyCatalog() = default;

const CatalogEntry* AnyCatalog::find(std::string_view name) const noexcept {
  const auto found =
      std::find_if(entries_.begin(), entries_.end(), [name](const CatalogEntry& entry) { return entry.name == name; });
  return found == entries_.end() ? nullptr : &*found;
}

std::vector<std::string> AnyCatalog::names() const {
  std::vector<std::string> names;
  for (const CatalogEntry& entry : entries_) names.push_back(entry.name);
  std::sort(names.begin(), names.end());
  return names;
}

std::string AnyCatalog::entries_in_words() const {
  std::string text;
  for (const std::string& name : names()) text += (text.empty() ? "" : "; ") + name + ": " + find(name)->help;
  return text;
}

Choice AnyCatalog::with_defaults(const std::string& name) const {
  return {name, entries_[index_of(name)].schema->create()};
}

void AnyCatalog::add_entry(CatalogEntry entry) {
  if (const CatalogEntry* other = find(entry.name)) {
    throw std::logic_error("it is registered twice, also in " + other->location);
  }
  if (RegistrationsOf* library = RegistrationsOf::now()) {
    entry.location += " of " + library->library();
    library->add(kind_ + " '" + entry.name + "'");
  }
  entries_.push_back(std::move(entry));
}

size_t AnyCatalog::index_of(std::string_view name) const {
  const CatalogEntry* entry = find(name);
  GPUTRAIN_ASSERT(entry != nullptr, "no " + kind_ + " is named '" + std::string(name) + "'");
  return static_cast<size_t>(entry - entries_.data());
}

namespace {

std::string& wrong_registrations() {
  static std::string all;
  return all;
}

RegistrationsOf*& library_being_loaded() {
  static RegistrationsOf* library = nullptr;
  return library;
}

}  // namespace

RegistrationsOf::RegistrationsOf(std::string library) : library_(std::move(library)) {
  GPUTRAIN_ASSERT(now() == nullptr, "two libraries are loaded at once");
  library_being_loaded() = this;
}

RegistrationsOf::~RegistrationsOf() { library_being_loaded() = nullptr; }

RegistrationsOf* RegistrationsOf::now() noexcept { return library_being_loaded(); }

void RegistrationsOf::note(const std::string& mistake) { mistakes_ += (mistakes_.empty() ? "" : "; ") + mistake; }

void note_wrong_registration(const std::string& what) {
  if (RegistrationsOf* library = RegistrationsOf::now()) return library->note(what);
  std::string& all = wrong_registrations();
  all += (all.empty() ? "" : "; ") + what;
}

void refuse_wrong_registrations() {
  if (wrong_registrations().empty()) return;
  throw Error(ExitCode::environment, {.what = "this program contains invalid registrations: " + wrong_registrations(),
                                      .hint = "fix them there and rebuild"});
}

}  // namespace gputrain::config
