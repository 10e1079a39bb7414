// Runs a program forward and backward at random sizes. Every tensor is a heap block of exactly its
// size. Outputs are filled with a poison first, and so is the engine's scratch: what is left unwritten,
// and what is read before it is written, shows.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "onegate.h"
#include "program.h"

// scratch.cpp, for each instruction set that is built.
namespace baseline { void fill_scratch(int byte, size_t bytes); }
#if defined(OG_HAVE_AVX2)
namespace avx2 { void fill_scratch(int byte, size_t bytes); }
#endif
#if defined(OG_HAVE_AVX512)
namespace avx512 { void fill_scratch(int byte, size_t bytes); }
#endif

namespace {

void fill_scratch(int byte, size_t bytes) {
  const std::string chosen = og_instruction_set();
#if defined(OG_HAVE_AVX512)
  if (chosen == "avx512") return avx512::fill_scratch(byte, bytes);
#endif
#if defined(OG_HAVE_AVX2)
  if (chosen == "avx2") return avx2::fill_scratch(byte, bytes);
#endif
  baseline::fill_scratch(byte, bytes);
}

using Random = std::mt19937_64;

int64_t between(Random& random, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}
bool coin(Random& random) { return between(random, 0, 1) == 1; }

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "%s\n", what.c_str());
  std::exit(1);
}

struct Named {
  std::string name;
  std::vector<int64_t> code;
  std::vector<double> constants;
};

using Program = std::unique_ptr<og_program, decltype(&og_program_free)>;

Program make(const Named& named, std::string& message) {
  char text[256] = "";
  Program program(og_program_new(named.code.data(), static_cast<int64_t>(named.code.size()),
                                 named.constants.data(),
                                 static_cast<int64_t>(named.constants.size()), text, sizeof text),
                  &og_program_free);
  message = text;
  if (program == nullptr && message.empty()) fail(named.name + " is refused without a message");
  return program;
}

// What a run is asked to do, but for threads and split.
struct Call {
  int64_t steps, rows;
  int32_t directions;
  bool keep, grad_out, grad_last, grad_x;
  int64_t gap;  // elements between rows of strided tensors
  std::vector<int64_t> lengths;
  bool reset;  // in one direction
  int32_t stored[6];  // of 32 bits: how x, start, parameters, out, last and x's gradient are
  bool added;         // whether something is added to vectors
  uint64_t seed;
  bool nan = true;  // the poison; any other number if not
  size_t scratch = size_t{1} << 22;  // bytes of it to poison
};

Call draw(Random& random) {
  Call call{};
  const bool large = between(random, 0, 4) == 0;
  call.steps = between(random, 1, large ? 40 : 6);
  call.rows = between(random, 1, large ? 20 : 5);
  call.directions = static_cast<int32_t>(between(random, 1, 2));
  call.keep = between(random, 0, 4) != 0;
  call.grad_out = coin(random);
  call.grad_last = !call.grad_out || coin(random);
  call.grad_x = coin(random);
  call.gap = coin(random) ? between(random, 1, 5) : 0;
  if (coin(random))
    for (int64_t r = 0; r < call.rows; ++r)
      call.lengths.push_back(between(random, 1, call.steps));
  call.reset = call.directions == 1 && coin(random);
  const bool half = coin(random);
  for (int32_t& stored : call.stored) stored = static_cast<int32_t>(half ? between(random, 0, 2) : 0);
  call.added = coin(random);
  call.seed = random();
  return call;
}

// Numbers of a tensor as they are stored, a block of exactly its size. What is set is cut off, not rounded.
template <class T> class Block {
 public:
  Block() = default;
  Block(int64_t count, int32_t stored)
      : bytes_(new char[static_cast<size_t>(count) * (stored == 0 ? sizeof(T) : 2)]), count_(count),
        stored_(stored) {}

  void* get() const { return bytes_.get(); }
  int64_t count() const { return count_; }
  double stored_as(double value) const {
    Block one(1, stored_);
    one.set(0, value);
    return one.at(0);
  }
  double at(int64_t i) const {
    if (stored_ == 0) return place<T>(i);
    const uint32_t bits = place<uint16_t>(i);
    if (stored_ == OG_BFLOAT16) return as<float>(bits << 16);
    const int exponent = static_cast<int>(bits >> 10 & 31);
    const double fraction = bits & 1023, sign = bits >> 15 == 0 ? 1 : -1;
    if (exponent == 31) return sign * (fraction == 0 ? INFINITY : NAN);
    return sign * std::ldexp(fraction + (exponent == 0 ? 0 : 1024), std::max(exponent, 1) - 25);
  }
  void set(int64_t i, double value) {
    if (stored_ == 0) {
      place<T>(i) = static_cast<T>(value);
      return;
    }
    const uint32_t bits = as<uint32_t>(static_cast<float>(value)), exponent = bits >> 23 & 255;
    uint32_t half = bits >> 16;
    if (stored_ == OG_FLOAT16) {
      half = bits >> 16 & 0x8000;
      if (exponent == 255) half |= 0x7fff;
      else if (exponent > 112) half |= ((exponent - 112) << 10) | (bits >> 13 & 1023);
    }
    place<uint16_t>(i) = static_cast<uint16_t>(half);
  }

 private:
  template <class To, class From> static To as(From from) {
    To to;
    std::memcpy(&to, &from, sizeof to);
    return to;
  }
  template <class N> N& place(int64_t i) const { return reinterpret_cast<N*>(bytes_.get())[i]; }

  std::unique_ptr<char[]> bytes_;
  int64_t count_ = 0;
  int32_t stored_ = 0;
};

// Tensors of a run.
template <class T> class Run {
 public:
  Run(const og_program& p, const Call& call) : p_(p), call_(call), random_(call.seed) {
    if (sizeof(T) == sizeof(float)) std::copy(call.stored, call.stored + 6, stored_);
    const auto [of_x, of_start, of_parameters, of_out, of_last, of_grad_x] = stored_;
    const int64_t n = p.states[0], D = call.directions, TB = call.steps * call.rows;
    x_row_ = p.inputs[0] + call.gap;
    out_row_ = D * n + call.gap;
    const int64_t states = D * call.rows * p.state_sum;
    x_ = random_block(strided(x_row_, p.inputs[0]), 1, of_x);
    start_ = random_block(states, 1, of_start);
    out_ = empty(strided(out_row_, D * n), of_out);
    last_ = empty(states, of_last);
    kept_ = empty(og_kept_size(&p, D, call.steps, call.rows) + (of_out == 0 ? 0 : D * TB * n));
    grad_out_ = random_block(strided(out_row_, D * n), 1, of_out);
    grad_last_ = random_block(states, 1, of_last);
    grad_x_ = empty(D * TB * p.inputs[0], of_grad_x);
    grad_start_ = empty(states, of_start);
    for (size_t i = 1; i < p.inputs.size(); ++i) {
      const int64_t row = p.inputs[i] + call.gap;
      extras_.push_back(random_block(strided(row, p.inputs[i]), 1));
      grad_extras_.push_back(empty(D * TB * p.inputs[i]));
      inputs_.push_back({extras_.back().get(), call.rows * row, row, 0});
      if (coin(random_)) {  // a mask of bytes
        masks_.emplace_back(static_cast<size_t>(strided(row, p.inputs[i])));
        for (uint8_t& byte : masks_.back()) byte = coin(random_);
        inputs_.back().data = masks_.back().data();
        inputs_.back().bytes = 1;
      }
      grad_input_pointers_.push_back(grad_extras_.back().get());
    }
    if (call.reset) {
      for (int64_t i = 0; i < TB; ++i) reset_.push_back(coin(random_));
      initial_ = random_block(p.state_sum, 1);
      grad_initial_ = empty(call.rows * p.state_sum);
    }
    parameter_pointers_.reserve(1);  // not null, even where a unit has no parameter
    grad_pointers_.reserve(1);
    for (int64_t i = 0; i < D * static_cast<int64_t>(p.parameters.size()); ++i) {
      const Shape shape = p.parameters[i % static_cast<int64_t>(p.parameters.size())];
      const double scale = shape.columns == 0 ? 0.5 : 0.7 / std::sqrt(double(shape.columns));
      parameters_.push_back(random_block(shape.count(), scale, of_parameters));
      grads_.push_back(empty(shape.count(), of_parameters));
      const bool added = shape.columns == 0 && coin(random_);
      added_.push_back(added ? random_block(shape.count(), scale, of_parameters) : Block<T>());
      added_pointers_.push_back(added_.back().get());
      parameter_pointers_.push_back(parameters_.back().get());
      grad_pointers_.push_back(grads_.back().get());
    }
  }

  void go(int32_t threads, int32_t split) {
    og_forward f{};
    f.program = &p_;
    f.bits = 8 * sizeof(T);
    f.directions = call_.directions;
    f.threads = threads;
    f.split = split;
    f.steps = call_.steps;
    f.rows = call_.rows;
    f.lengths = call_.lengths.empty() ? nullptr : call_.lengths.data();
    f.x = x_.get();
    f.x_row = x_row_;
    f.x_step = call_.rows * x_row_;
    f.start = start_.get();
    f.out = out_.get();
    f.out_row = out_row_;
    f.out_step = call_.rows * out_row_;
    f.last = last_.get();
    f.kept = call_.keep ? kept_.get() : nullptr;
    f.parameters = parameter_pointers_.data();
    f.extras = inputs_.empty() ? nullptr : inputs_.data();
    if (call_.reset) {
      f.reset = reset_.data();
      f.reset_step = call_.rows;
      f.reset_row = 1;
      f.initial = initial_.get();
    }
    f.added = call_.added ? added_pointers_.data() : nullptr;
    f.x_stored = stored_[0];
    f.start_stored = stored_[1];
    f.parameters_stored = stored_[2];
    f.out_stored = stored_[3];
    f.last_stored = stored_[4];
    check(og_run_forward, &f);
    if (!call_.keep) return;
    og_backward b{};
    b.forward = f;
    b.forward.last = nullptr;
    if (stored_[3] != 0) b.forward.out = nullptr;
    b.grad_x_stored = stored_[5];
    b.grad_out = call_.grad_out ? grad_out_.get() : nullptr;
    b.grad_out_row = out_row_;
    b.grad_out_step = call_.rows * out_row_;
    b.grad_last = call_.grad_last ? grad_last_.get() : nullptr;
    b.grad_x = call_.grad_x ? grad_x_.get() : nullptr;
    b.grad_start = grad_start_.get();
    b.grad_parameters = grad_pointers_.data();
    b.grad_extras = inputs_.empty() ? nullptr : grad_input_pointers_.data();
    if (call_.reset) {
      for (int64_t i = 0; i < grad_initial_.count(); ++i) grad_initial_.set(i, 0);  // is added to
      b.grad_initial = grad_initial_.get();
    }
    check(og_run_backward, &b);
  }

  // Everything that was to be written, gaps between rows left out.
  std::vector<double> results() const {
    std::vector<double> all;
    const auto add = [&](const Block<T>& block) {
      for (int64_t i = 0; i < block.count(); ++i) all.push_back(block.at(i));
    };
    const int64_t width = call_.directions * p_.states[0];
    for (int64_t row = 0; row < call_.steps * call_.rows; ++row)
      for (int64_t i = 0; i < width; ++i) all.push_back(out_.at(row * out_row_ + i));
    add(last_);
    if (!call_.keep) return all;
    add(grad_start_);
    if (call_.grad_x) add(grad_x_);
    for (const Block<T>& grad : grad_extras_) add(grad);
    if (call_.reset) add(grad_initial_);
    for (const Block<T>& grad : grads_) add(grad);
    return all;
  }

  // Whether what lies between the rows of the output still holds the poison.
  bool gaps_kept() const {
    const int64_t width = call_.directions * p_.states[0];
    for (int64_t row = 0; row + 1 < call_.steps * call_.rows; ++row)
      for (int64_t i = width; i < out_row_; ++i) {
        const double value = out_.at(row * out_row_ + i);
        if (call_.nan ? !std::isnan(value) : value != out_.stored_as(poison())) return false;
      }
    return true;
  }

 private:
  double poison() const { return call_.nan ? std::numeric_limits<double>::quiet_NaN() : 0.747; }

  // Elements of (steps, rows, width) with `row` from one row to the next: none after the last one.
  int64_t strided(int64_t row, int64_t width) const {
    return (call_.steps * call_.rows - 1) * row + width;
  }
  Block<T> empty(int64_t count, int32_t stored = 0) {
    Block<T> block(count, stored);
    for (int64_t i = 0; i < count; ++i) block.set(i, poison());
    return block;
  }
  Block<T> random_block(int64_t count, double scale, int32_t stored = 0) {
    Block<T> block(count, stored);
    std::normal_distribution<double> normal(0, scale);
    for (int64_t i = 0; i < count; ++i) block.set(i, normal(random_));
    return block;
  }
  template <class C> void check(int32_t (*run)(const C*, char*, int64_t), const C* call) {
    char message[256] = "";
    fill_scratch(call_.nan ? 0xff : 0x3f, call_.scratch);
    if (run(call, message, sizeof message) != 0) fail(std::string("a run is refused: ") + message);
  }

  const og_program& p_;
  const Call& call_;
  Random random_;
  int32_t stored_[6] = {};
  int64_t x_row_, out_row_;
  Block<T> x_, start_, out_, last_, kept_, grad_out_, grad_last_, grad_x_, grad_start_;
  Block<T> initial_, grad_initial_;
  std::vector<Block<T>> extras_, grad_extras_, added_;
  std::vector<std::vector<uint8_t>> masks_;
  std::vector<og_input> inputs_;
  std::vector<void*> grad_input_pointers_;
  std::vector<uint8_t> reset_;
  std::vector<Block<T>> parameters_, grads_;
  std::vector<const void*> parameter_pointers_, added_pointers_;
  std::vector<void*> grad_pointers_;
};

template <class T> std::vector<double> results(const og_program& p, const Call& call,
                                               int32_t threads, int32_t split) {
  Run<T> run(p, call);
  run.go(threads, split);
  if (!run.gaps_kept()) fail("something is written between the rows of the output");
  return run.results();
}

// Whether all widths together, and all matrices in parts of 16, come to no more than `limit`.
bool small_enough(const og_program& p, int64_t limit) {
  int64_t total = p.state_sum + og_kept_size(&p, 1, 1, 1);
  for (int64_t width : p.inputs) total += width;
  for (const Shape& shape : p.parameters) total += shape.count() / 16;
  for (const Code* code : {&p.forward, &p.backward}) {
    for (const Slot& slot : code->slots) total += slot.width;
    for (const auto* widths : {&code->temps, &code->chunks})
      for (int64_t width : *widths) total += width;
  }
  return total <= limit;
}

}  // namespace
