// A checked program: what a step computes, forward and backward. See graph/program.py.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "operations.h"

constexpr int64_t kFormat = 3;

// Sums and products of sizes; one that does not fit is the largest number there is.
inline int64_t plus(int64_t a, int64_t b) {
  int64_t sum;
  return __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}
inline int64_t times(int64_t a, int64_t b) {
  int64_t product;
  return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

// No size that comes of a program and a call within these limits overflows.
constexpr int64_t kMaxNumbers = int64_t{1} << 40;   // of a program's row, its parameters, its step
constexpr int64_t kMaxRowSteps = int64_t{1} << 48;  // of a call
constexpr int64_t kMaxTensor = int64_t{1} << 59;    // numbers from a tensor's first to its last
constexpr int32_t kMaxThreads = 1024;

enum class Space : int32_t {
  kInput, kPrev, kNext, kKeep, kTemp, kChunk, kVector, kConstant, kGradNext, kGradPrev, kGradInput
};
constexpr int64_t kSpaces = 11;

#define OG_NUMBER(code, name, operands, value) name = code,
enum class Op : int32_t { OG_OPERATIONS(OG_NUMBER) };
#undef OG_NUMBER

struct Operation {
  int32_t opcode;
  const char* name;
  int32_t operands;
};
#define OG_ROW(code, name, operands, value) {code, #name, operands},
constexpr Operation kOperations[] = {OG_OPERATIONS(OG_ROW)};
#undef OG_ROW
constexpr int64_t kOps = sizeof kOperations / sizeof kOperations[0];

constexpr bool numbered_in_order() {
  for (int32_t i = 0; i < kOps; ++i)
    if (kOperations[i].opcode != i) return false;
  return true;
}
static_assert(numbered_in_order(), "operations.h lists opcodes from 0 up");

// Which operands are one number for each row where the others are vectors (bits 0 to 2), and whether
// the result is (bit 3).
constexpr int32_t narrow(Op op) {
  switch (op) {
    case Op::mean: case Op::mean_product: return 8;
    case Op::variance: return 2 | 8;
    case Op::scaled: return 2;
    case Op::normed: return 2 | 4;
    case Op::minus_scaled: return 4;
    default: return 0;
  }
}

// Whether the result is added to the gradient of a parameter.
constexpr bool sums_rows(Op op) { return op == Op::reduce || op == Op::reduce_product; }

struct Slot {
  Space space;
  int32_t index;
  int64_t width;
};

struct Instruction {
  Op op;
  int32_t dst;  // a slot; for sums over rows a parameter
  int32_t args[3];
};

// What is done in one pass over the rows: an instruction, or several of which one reads what another
// has written. See groups.h.
struct Group {
  enum class Kind {
    one,
    moments,  // mean, variance
    root,     // add or muladd, sqrt, div; of numbers alone
    affine,   // normed or scaled, muladd
    gained,   // mul, mean, mean_product
    apart,    // normed or scaled, minus_scaled
    sums,     // reduce_product, reduce
  };
  static constexpr int kMost = 3;
  Kind kind;
  int count;
  Instruction parts[kMost];
  bool stored[kMost];  // whether a part's result is read by others
};

struct Factor {  // slot times matrix
  int32_t slot;
  int32_t parameter;
};

struct Stage {  // a product if `terms` is not empty, else a run of pointwise instructions
  std::vector<Instruction> run;
  std::vector<Group> groups;  // the run as it is worked on
  int32_t dst = -1, init = -1;
  std::vector<Factor> terms;
};

struct Code {
  std::vector<Slot> slots;
  std::vector<int64_t> temps, chunks;  // widths
  std::vector<bool> brief;             // by temp: whether its values live within a run
  std::vector<std::pair<int32_t, int64_t>> own;  // of those the ones that groups use; number and width
  std::vector<Stage> stages;
};

struct MapSums {  // weight gradients of one map
  int32_t output;
  int32_t bias;  // a parameter, or -1
  std::vector<Factor> operands;
};

struct Shape {
  int64_t rows, columns;  // of a head; columns == 0: a vector
  int64_t heads;          // blocks on the diagonal, stored one after the other
  int64_t block() const { return columns == 0 ? rows : rows * columns; }
  int64_t count() const { return heads * block(); }
};

struct og_program {
  std::vector<int64_t> inputs;         // widths, of x first
  std::vector<int64_t> states;         // widths
  std::vector<int64_t> state_offsets;  // within a row of all states
  int64_t state_sum = 0;
  std::vector<Shape> parameters;
  std::vector<int64_t> kept;          // widths
  std::vector<double> constants;
  Code forward, backward;
  std::vector<MapSums> maps;
  bool heads = false;                  // some matrix has several
  bool whole_rows = false;             // columns cannot be split among threads
  int64_t widest = 1;                  // width of the widest slot
  int64_t multiplications = 0;         // of the forward step, per row
  int64_t numbers = 0;                 // of all that a row of a step may need, at least

  // Per step and row: the kept values, and the states other than the output.
  int64_t kept_per_row(bool recompute) const;

  // Whether a call may have so many rows and steps.
  bool fits(int64_t directions, int64_t steps, int64_t rows) const {
    const int64_t all = times(times(directions, steps), rows);
    return all <= kMaxRowSteps && times(all, std::max(numbers, multiplications)) <= kMaxTensor;
  }
};

// Reads and checks a program; on error the result is null and `error` says why.
og_program* read_program(const int64_t* code, int64_t length, const double* constants,
                         int64_t constant_count, std::string& error);
