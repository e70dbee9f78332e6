#include "nodes.hpp"
#include "render.hpp"

namespace gputrain::chat {

void Target::assign(Render& render, Value value) const {
  if (kind == Kind::name) return render.assign(id, std::move(value));
  if (kind == Kind::attribute) {
    Namespace* space = render.variable(id).space();
    if (space == nullptr)
      throw Problem("'" + render.name_of(id) + "' is no namespace(), so its attribute '" + attribute +
                    "' cannot be set");
    return space->set(attribute, std::move(value));
  }
  const auto values = items_of(value, render.budget);
  if (values->items.size() != parts.size())
    throw Problem("expected " + std::to_string(parts.size()) + " values to assign, got " +
                  std::to_string(values->items.size()));
  for (size_t i = 0; i < parts.size(); ++i) parts[i].assign(render, values->items[i]);
}

Flow Data::execute(Render& render) const {
  render.write(text);
  return Flow::next;
}

Flow Output::execute(Render& render) const {
  const Value shown = value->evaluate(render);
  if (const std::string* text = shown.string()) {
    render.write(*text);
  } else {
    render.write(text_of(shown, render.budget));
  }
  return Flow::next;
}

Flow If::execute(Render& render) const {
  for (const auto& [condition, block] : branches)
    if (is_true(condition->evaluate(render))) return Render::run(block, render);
  return Render::run(otherwise, render);
}

Flow For::execute(Render& render) const {
  const auto source = items_of(items->evaluate(render), render.budget);
  std::shared_ptr<Loop> loop;
  if (uses_loop) loop = std::make_shared<Loop>(Loop{condition ? chosen(render, *source) : source});
  const Values& values = loop ? loop->items->items : source->items;
  bool is_empty = true;
  for (size_t i = 0; i < values.size(); ++i) {
    const Render::Inside turn(render);
    const Render::About about(render, values[i]);
    render.budget.spend(1);
    target.assign(render, values[i]);
    if (!loop && condition && !is_true(condition->evaluate(render))) continue;
    is_empty = false;
    if (loop) {
      loop->index0 = i;
      render.assign(loop_id, Value(loop));
    }
    if (Render::run(body, render) == Flow::leaves_loop) break;
  }
  return is_empty ? render.run_inside(otherwise) : Flow::next;
}

/// Chooses the items before the first turn, because `loop` knows the items to come.
std::shared_ptr<const Sequence> For::chosen(Render& render, const Sequence& source) const {
  Values values;
  for (const Value& item : source.items) {
    const Render::Inside turn(render);
    render.budget.spend(1);
    target.assign(render, item);
    if (is_true(condition->evaluate(render))) values.push_back(item);
  }
  return std::make_shared<const Sequence>(Sequence::Kind::list, std::move(values));
}

Flow SetValue::execute(Render& render) const {
  Value set = value->evaluate(render);
  render.note_set(set);
  target.assign(render, std::move(set));
  return Flow::next;
}

Flow SetBlock::execute(Render& render) const {
  Flow flow = Flow::next;
  Value value(render.captured([&] { flow = render.run_inside(body); }));
  if (flow != Flow::next) return flow;
  for (const auto& filter : filters) value = filter->apply(render, std::move(value));
  target.assign(render, std::move(value));
  return Flow::next;
}

Flow MacroDefinition::execute(Render& render) const {
  render.assign(id, render.new_macro(*this));
  return Flow::next;
}

Flow Generation::execute(Render& render) const {
  const size_t begin = render.written();
  render.run_inside(body);
  render.add_generated({begin, render.written()});
  return Flow::next;
}

Flow Jump::execute(Render&) const { return flow; }

}  // namespace gputrain::chat
