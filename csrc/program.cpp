#include "program.h"

#include <cmath>
#include <memory>
#include <stdexcept>

#include "groups.h"

namespace {

constexpr int64_t kMaxWidth = 1 << 24;
constexpr int64_t kMaxCount = 1 << 16;

[[noreturn]] void refuse(const std::string& what) { throw std::invalid_argument(what); }

std::string text(int64_t n) { return std::to_string(n); }

class Reader {
 public:
  Reader(const int64_t* code, int64_t length) : code_(code), length_(length) {}

  int64_t next(const char* what, int64_t low, int64_t high) {
    if (at_ >= length_) refuse(std::string("the program ends before ") + what);
    const int64_t value = code_[at_++];
    if (value < low || value > high)
      refuse(std::string(what) + " is " + text(value) + ", expected " + text(low) + " to " +
             text(high));
    return value;
  }
  int64_t count(const char* what) { return next(what, 0, kMaxCount); }
  int64_t width(const char* what) { return next(what, 1, kMaxWidth); }
  void end() const {
    if (at_ != length_)
      refuse(text(length_ - at_) + " integers are left over after the end of the program");
  }

 private:
  const int64_t* code_;
  int64_t length_;
  int64_t at_ = 0;
};

class Checker {
 public:
  Checker(const og_program& p, Code& code, bool backward)
      : p_(p), code_(code), backward_(backward) {}

  void read(Reader& in) {
    const int64_t slots = in.count("the number of slots");
    for (int64_t i = 0; i < slots; ++i) {
      Slot slot;
      slot.space = static_cast<Space>(in.next("a slot's space", 0, kSpaces - 1));
      slot.index = static_cast<int32_t>(in.count("a slot's number"));
      slot.width = in.width("a slot's width");
      code_.slots.push_back(slot);
    }
    for (auto* widths : {&code_.temps, &code_.chunks}) {
      const int64_t count = in.count("the number of scratch vectors");
      for (int64_t i = 0; i < count; ++i) widths->push_back(in.width("a scratch vector's width"));
    }
    for (const Slot& slot : code_.slots) check(slot);
    written_.assign(code_.slots.size(), false);
    const int64_t stages = in.count("the number of stages");
    for (int64_t i = 0; i < stages; ++i) {
      Stage stage;
      if (in.next("a stage's kind", 0, 1) == 0)
        read_run(in, stage);
      else
        read_product(in, stage);
      code_.stages.push_back(std::move(stage));
    }
    check_results();
    find_brief();
  }

  // A slot that the weight gradients read after the last step of a chunk.
  int32_t lasting(Reader& in, const char* what) {
    const int32_t slot = readable(in, what);
    const Space space = code_.slots[slot].space;
    if (space != Space::kInput && space != Space::kPrev && space != Space::kNext &&
        space != Space::kKeep && space != Space::kChunk)
      refuse(std::string(what) + " does not last until the weights' gradients are summed");
    return slot;
  }

 private:
  void check(const Slot& slot) const {
    const auto fits = [&](const std::vector<int64_t>& widths, const char* what) {
      if (slot.index >= static_cast<int64_t>(widths.size()))
        refuse(std::string("there is no ") + what + " " + text(slot.index));
      if (widths[slot.index] != slot.width)
        refuse(std::string(what) + " " + text(slot.index) + " has width " +
               text(widths[slot.index]) + ", the slot says " + text(slot.width));
    };
    switch (slot.space) {
      case Space::kInput:
        return fits(p_.inputs, "input");
      case Space::kGradInput:
        require_backward("an input gradient");
        return fits(p_.inputs, "input gradient");
      case Space::kGradNext: case Space::kGradPrev:
        require_backward("a state gradient");
        return fits(p_.states, "state gradient");
      case Space::kPrev: case Space::kNext:
        return fits(p_.states, "state");
      case Space::kKeep:
        return fits(p_.kept, "kept value");
      case Space::kTemp:
        return fits(code_.temps, "scratch vector");
      case Space::kChunk:
        require_backward("a chunk vector");
        return fits(code_.chunks, "chunk vector");
      case Space::kVector:
        if (slot.index >= static_cast<int64_t>(p_.parameters.size()) ||
            p_.parameters[slot.index].columns != 0 ||
            p_.parameters[slot.index].rows != slot.width)
          refuse("parameter " + text(slot.index) + " is not a vector of " + text(slot.width));
        return;
      case Space::kConstant:
        if (slot.index >= static_cast<int64_t>(p_.constants.size()))
          refuse("there is no constant " + text(slot.index));
    }
  }

  void require_backward(const char* what) const {
    if (!backward_) refuse(std::string(what) + " stands in the forward step");
  }

  // Spaces that hold a value before the step begins.
  bool given(Space space) const {
    switch (space) {
      case Space::kInput: case Space::kPrev: case Space::kVector: case Space::kConstant:
        return true;
      case Space::kNext: case Space::kKeep: case Space::kGradNext:
        return backward_;
      default:
        return false;
    }
  }

  int32_t slot_number(Reader& in, const char* what) {
    return static_cast<int32_t>(
        in.next(what, 0, static_cast<int64_t>(code_.slots.size()) - 1));
  }

  int32_t readable(Reader& in, const char* what) {
    const int32_t slot = slot_number(in, what);
    if (!given(code_.slots[slot].space) && !written_[slot])
      refuse(std::string(what) + " (slot " + text(slot) + ") is read before it is written");
    return slot;
  }

  int32_t writable(Reader& in, const char* what) {
    const int32_t slot = slot_number(in, what);
    const Space space = code_.slots[slot].space;
    if (given(space)) refuse(std::string(what) + " (slot " + text(slot) + ") may not be written");
    return slot;
  }

  void read_run(Reader& in, Stage& stage) {
    const int64_t count = in.next("a run's length", 1, kMaxCount);
    for (int64_t i = 0; i < count; ++i) {
      Instruction step{};
      step.op = static_cast<Op>(in.next("an opcode", 0, kOps - 1));
      const bool reduce = sums_rows(step.op);
      if (reduce) {
        require_backward("a reduction");
        step.dst = static_cast<int32_t>(in.next(
            "a reduction's parameter", 0, static_cast<int64_t>(p_.parameters.size()) - 1));
      } else {
        step.dst = writable(in, "a result");
      }
      const int used = kOperations[static_cast<int>(step.op)].operands;
      for (int a = 0; a < 3; ++a)
        step.args[a] = a < used ? readable(in, "an operand")
                                : static_cast<int32_t>(in.next("an unused operand", -1, -1));
      Shape target = reduce ? p_.parameters[step.dst]
                            : Shape{code_.slots[step.dst].width, 0, 1};
      const auto is_number = [](int64_t width) {
        if (width != 1) refuse("a number of the row has width " + text(width));
      };
      const int32_t numbers = narrow(step.op);
      if ((numbers & 8) != 0) {
        is_number(target.rows);
        target.rows = code_.slots[step.args[0]].width;
      }
      for (int a = 0; a < used; ++a) {
        const int64_t width = code_.slots[step.args[a]].width;
        if ((numbers >> a & 1) != 0)
          is_number(width);
        else if (target.columns != 0 || width != target.rows)
          refuse("an operand has width " + text(width) + ", its result " + text(target.rows));
      }
      if (!reduce) written_[step.dst] = true;
      stage.run.push_back(step);
    }
  }

  void read_product(Reader& in, Stage& stage) {
    stage.dst = writable(in, "a product's result");
    const int64_t width = code_.slots[stage.dst].width;
    const int64_t last = static_cast<int64_t>(code_.slots.size()) - 1;
    stage.init = static_cast<int32_t>(in.next("a product's init", -1, last));
    if (stage.init >= 0) {
      const Slot& init = code_.slots[stage.init];
      if (!given(init.space) && !written_[stage.init])
        refuse("a product's init is read before it is written");
      if (init.width != width || init.space == Space::kConstant)
        refuse("a product's init does not fit its result");
    }
    const int64_t count = in.next("a product's number of terms", 1, kMaxCount);
    for (int64_t i = 0; i < count; ++i) {
      const int32_t slot = readable(in, "a product's operand");
      const int32_t parameter = static_cast<int32_t>(in.next(
          "a product's matrix", 0, static_cast<int64_t>(p_.parameters.size()) - 1));
      const Shape shape = p_.parameters[parameter];
      const int64_t from = shape.heads * (backward_ ? shape.rows : shape.columns);
      const int64_t to = shape.heads * (backward_ ? shape.columns : shape.rows);
      if (shape.columns == 0 || code_.slots[slot].width != from || width != to ||
          code_.slots[slot].space == Space::kConstant)
        refuse("matrix " + text(parameter) + " does not fit its operand or result");
      const Slot& operand = code_.slots[slot];
      const Slot& result = code_.slots[stage.dst];
      if (operand.space == result.space && operand.index == result.index)
        refuse("a product overwrites its own operand");
      stage.terms.push_back({slot, parameter});
    }
    written_[stage.dst] = true;
  }

  // Scratch that no product touches, and that every run writes before it reads it.
  void find_brief() {
    code_.brief.assign(code_.temps.size(), true);
    for (const Stage& stage : code_.stages) {
      std::vector<bool> fresh(code_.temps.size(), false);
      const auto lives_on = [&](int32_t slot) {
        if (slot >= 0 && code_.slots[slot].space == Space::kTemp && !fresh[code_.slots[slot].index])
          code_.brief[code_.slots[slot].index] = false;
      };
      for (const Instruction& i : stage.run) {
        for (int32_t slot : i.args) lives_on(slot);
        if (!sums_rows(i.op) && code_.slots[i.dst].space == Space::kTemp)
          fresh[code_.slots[i.dst].index] = true;
      }
      if (stage.terms.empty()) continue;
      for (int32_t slot : {stage.dst, stage.init}) lives_on(slot);
      for (const Factor& term : stage.terms) lives_on(term.slot);
    }
  }

  bool is_written(Space space, int64_t index) const {
    for (size_t i = 0; i < code_.slots.size(); ++i)
      if (code_.slots[i].space == space && code_.slots[i].index == index && written_[i])
        return true;
    return false;
  }

  void check_results() const {
    const Space states = backward_ ? Space::kGradPrev : Space::kNext;
    for (size_t i = 0; i < p_.states.size(); ++i)
      if (!is_written(states, static_cast<int64_t>(i)))
        refuse("state " + text(static_cast<int64_t>(i)) + " is not written by the step");
    for (const Slot& slot : code_.slots)  // which the engine hands out if it is there
      if (slot.space == Space::kGradInput && !is_written(Space::kGradInput, slot.index))
        refuse("the input gradient is not written by the step");
    if (!backward_)
      for (size_t i = 0; i < p_.kept.size(); ++i)
        if (!is_written(Space::kKeep, static_cast<int64_t>(i)))
          refuse("kept value " + text(static_cast<int64_t>(i)) + " is not written by the step");
  }

  const og_program& p_;
  Code& code_;
  bool backward_;
  std::vector<bool> written_;
};

void read_maps(Reader& in, og_program& p, Checker& backward) {
  std::vector<bool> summed(p.parameters.size(), false);
  const auto once = [&](int64_t parameter) {
    if (summed[parameter]) refuse("parameter " + text(parameter) + " has two gradients");
    summed[parameter] = true;
  };
  const int64_t last = static_cast<int64_t>(p.parameters.size()) - 1;
  const int64_t maps = in.count("the number of maps");
  for (int64_t i = 0; i < maps; ++i) {
    MapSums map;
    map.output = backward.lasting(in, "a map's gradient");
    const Slot& output = p.backward.slots[map.output];
    if (output.space != Space::kChunk) refuse("a map's gradient is not a chunk vector");
    map.bias = static_cast<int32_t>(in.next("a map's bias", -1, last));
    if (map.bias >= 0) {
      const Shape shape = p.parameters[map.bias];
      if (shape.columns != 0 || shape.rows != output.width)
        refuse("a map's bias does not fit its result");
      once(map.bias);
    }
    const int64_t operands = in.next("a map's number of operands", 1, kMaxCount);
    int64_t heads = 0;
    for (int64_t o = 0; o < operands; ++o) {
      const int32_t slot = backward.lasting(in, "a map's operand");
      const int32_t parameter = static_cast<int32_t>(in.next("a map's matrix", 0, last));
      const Shape shape = p.parameters[parameter];
      if (shape.columns == 0 || shape.heads * shape.columns != p.backward.slots[slot].width ||
          shape.heads * shape.rows != output.width)
        refuse("a map's matrix does not fit its operand or result");
      if (heads != 0 && shape.heads != heads) refuse("a map's matrices differ in their heads");
      heads = shape.heads;
      once(parameter);
      map.operands.push_back({slot, parameter});
    }
    p.maps.push_back(std::move(map));
  }
}

void at_most(int64_t limit, int64_t count, const char* what) {
  if (count > limit)
    refuse("the program is too large: " + (count == INT64_MAX ? "too many " : text(count) + " ") +
           what + ", at most " + text(limit));
}

// How much a program needs, as sums that cannot overflow.
void measure(og_program& p) {
  constexpr int64_t kPadding = 31;  // a vector may be stored as whole panels
  const auto add = [&](int64_t width) { p.numbers = plus(p.numbers, width + kPadding); };
  for (const auto* widths : {&p.inputs, &p.states, &p.kept})
    for (int64_t width : *widths) add(width);
  for (const Code* code : {&p.forward, &p.backward}) {
    for (const Slot& slot : code->slots) {
      p.widest = std::max(p.widest, slot.width);
      add(slot.width);
    }
    for (const auto* widths : {&code->temps, &code->chunks})
      for (int64_t width : *widths) add(width);
  }
  for (const MapSums& map : p.maps)
    for (const Factor& operand : map.operands) add(p.backward.slots[operand.slot].width);
  for (const Code* code : {&p.forward, &p.backward})
    for (const Stage& stage : code->stages)
      for (const Instruction& i : stage.run) p.whole_rows = p.whole_rows || narrow(i.op) != 0;
  int64_t parameters = 0;
  for (const Shape& shape : p.parameters) {
    parameters = plus(parameters, shape.count());
    p.heads = p.heads || shape.heads > 1;
  }
  p.whole_rows = p.whole_rows || p.heads;
  for (const Stage& stage : p.forward.stages)
    for (const Factor& term : stage.terms)
      p.multiplications = plus(p.multiplications, p.parameters[term.parameter].count());
  at_most(kMaxNumbers, p.numbers, "numbers for each row");
  at_most(kMaxNumbers, parameters, "numbers in its parameters");
  at_most(kMaxNumbers, p.multiplications, "multiplications for each row");
}

}  // namespace

int64_t og_program::kept_per_row(bool recompute) const {
  int64_t sum = 0;
  if (!recompute)
    for (int64_t width : kept) sum += width;
  for (size_t i = 1; i < states.size(); ++i) sum += states[i];
  return sum;
}

og_program* read_program(const int64_t* code, int64_t length, const double* constants,
                         int64_t constant_count, std::string& error) try {
  auto p = std::make_unique<og_program>();
  Reader in(code, length);
  const int64_t format = in.next("the format", 0, INT32_MAX);
  if (format != kFormat)
    refuse("the program has format " + text(format) + ", this engine reads " + text(kFormat));
  const int64_t inputs = in.next("the number of inputs", 1, kMaxCount);
  for (int64_t i = 0; i < inputs; ++i) p->inputs.push_back(in.width("an input's width"));
  const int64_t states = in.next("the number of states", 1, kMaxCount);
  for (int64_t i = 0; i < states; ++i) {
    p->state_offsets.push_back(p->state_sum);
    p->states.push_back(in.width("a state's width"));
    p->state_sum += p->states.back();
  }
  const int64_t parameters = in.count("the number of parameters");
  for (int64_t i = 0; i < parameters; ++i) {
    const int64_t rows = in.width("a parameter's rows");
    const int64_t columns = in.next("a parameter's columns", 0, kMaxWidth);
    const int64_t heads = in.next("a parameter's heads", 1, columns == 0 ? 1 : kMaxCount);
    p->parameters.push_back({rows, columns, heads});
  }
  const int64_t kept = in.count("the number of kept values");
  for (int64_t i = 0; i < kept; ++i) p->kept.push_back(in.width("a kept value's width"));
  const int64_t listed = in.count("the number of constants");
  if (listed != constant_count)
    refuse("the program has " + text(listed) + " constants, " + text(constant_count) + " came");
  p->constants.assign(constants, constants + constant_count);
  Checker forward(*p, p->forward, false);
  forward.read(in);
  Checker backward(*p, p->backward, true);
  backward.read(in);
  read_maps(in, *p, backward);
  in.end();
  measure(*p);
  for (Code* code : {&p->forward, &p->backward}) make_groups(*code);
  return p.release();
} catch (const std::exception& e) {
  error = e.what();
  return nullptr;
}
