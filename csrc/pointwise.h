// The block interpreter: each instruction is a vector loop over a block of rows that stays in the
// first-level cache, so that reading and writing scratch costs little beside the arithmetic.
#pragma once

#include <utility>
#include <vector>

#include "operations.h"
#include "program.h"
#include "rows.h"
#include "vector.h"

namespace OG_ISA {

constexpr int64_t kBlock = 1024;  // elements an instruction works on at a time
constexpr int64_t kRepeated = 256;  // numbers of a vector that is the same for all rows, repeated

// Columns [first, last) of a vector of a given width: all, or a thread's share of whole panels.
struct Columns {
  int64_t first, last;
};

template <class T, class F> OG_INLINE void each(T* d, const T* a, int64_t n, F f) {
  int64_t i = 0;
  for (; i + kLanes<T> <= n; i += kLanes<T>) store(d + i, f(load(a + i)));
  if (i < n) store_part(d + i, f(load_part(a + i, n - i)), n - i);
}
template <class T, class F> OG_INLINE void each(T* d, const T* a, const T* b, int64_t n, F f) {
  int64_t i = 0;
  for (; i + kLanes<T> <= n; i += kLanes<T>) store(d + i, f(load(a + i), load(b + i)));
  if (i < n)
    store_part(d + i, f(load_part(a + i, n - i), load_part(b + i, n - i)), n - i);
}
template <class T, class F>
OG_INLINE void each(T* d, const T* a, const T* b, const T* c, int64_t n, F f) {
  int64_t i = 0;
  for (; i + kLanes<T> <= n; i += kLanes<T>)
    store(d + i, f(load(a + i), load(b + i), load(c + i)));
  if (i < n)
    store_part(d + i,
               f(load_part(a + i, n - i), load_part(b + i, n - i), load_part(c + i, n - i)),
               n - i);
}

// d = f(a, b, c), of which only the first `operands` are there.
template <int operands, class T, class F>
OG_INLINE void apply(T* d, const T* a, const T* b, const T* c, int64_t n, F f) {
  using V = Vec<T>;
  if constexpr (operands == 1) each(d, a, n, [f](V x) { return f(x, x, x); });
  if constexpr (operands == 2) each(d, a, b, n, [f](V x, V y) { return f(x, y, y); });
  if constexpr (operands == 3) each(d, a, b, c, n, f);
}

// n numbers, of which operands that repeat have the first `period` alone.
struct Extent {
  int64_t n, period;
  bool repeats[3];
};

template <class T>
void execute(Op op, T* d, const T* a, const T* b, const T* c, const Extent& e) {
  using V = Vec<T>;
  const int64_t next[] = {e.repeats[0] ? 0 : e.period, e.repeats[1] ? 0 : e.period,
                          e.repeats[2] ? 0 : e.period};
  switch (op) {
#define OG_CASE(code, name, operands, value)                                            \
  case Op::name:                                                                        \
    for (int64_t i = 0; i < e.n; i += e.period) {                                       \
      apply<operands>(d + i, a, b, c, std::min(e.period, e.n - i), [](V x, V y, V z) -> V { \
        (void)x, (void)y, (void)z;                                                      \
        return value;                                                                   \
      });                                                                               \
      a += next[0], b += operands > 1 ? next[1] : 0, c += operands > 2 ? next[2] : 0;   \
    }                                                                                   \
    return;
    OG_OPERATIONS(OG_CASE)
#undef OG_CASE
  }
}

// sums += value(row, column, n) for all rows, of VECTORS vectors from a column on; n elements are there.
template <class T, int VECTORS, class F>
OG_INLINE void add_columns(T* sums, int64_t rows, int64_t column, int64_t n, F value) {
  Vec<T> sum[VECTORS];
  for (int v = 0; v < VECTORS; ++v) sum[v] = some(sums, column + v * kLanes<T>, n);
  for (int64_t r = 0; r < rows; ++r)
    for (int v = 0; v < VECTORS; ++v) sum[v] += value(r, column + v * kLanes<T>, n);
  for (int v = 0; v < VECTORS; ++v) store_part(sums + column + v * kLanes<T>, sum[v], n);
}
template <class T, class F> OG_INLINE void add_rows(T* sums, int64_t rows, Columns c, F value) {
  constexpr int64_t L = kLanes<T>;
  int64_t i = c.first;
  for (; i + 4 * L <= c.last; i += 4 * L) add_columns<T, 4>(sums, rows, i, L, value);
  for (; i < c.last; i += L) add_columns<T, 1>(sums, rows, i, std::min(L, c.last - i), value);
}

// Memory that is read soon, asked for a few lines at a time between instructions.
class Ahead {
 public:
  void begin() { pieces_.clear(), next_ = 0; }
  void add(const void* from, int64_t bytes) {
    const char* first = static_cast<const char*>(from);
    pieces_.push_back({first, first + bytes});
    lines_ += bytes / kLine + 1;
  }
  // So many instructions are to come.
  void spread(int64_t instructions) {
    each_ = lines_ / std::max<int64_t>(1, instructions) + 1;
    lines_ = 0;
  }
  void fetch() {
    for (int64_t n = 0; n < each_ && next_ < pieces_.size(); ++n) {
      auto& [at, end] = pieces_[next_];
      __builtin_prefetch(at, 0, 2);
      if ((at += kLine) >= end) ++next_;
    }
  }

 private:
  static constexpr int64_t kLine = 64;
  std::vector<std::pair<const char*, const char*>> pieces_;
  size_t next_ = 0;
  int64_t lines_ = 0, each_ = 0;
};

// Where the slots of a step lie for one thread: `at` per slot; a still slot (a vector or a constant,
// or scratch of a run) does not move with the row.
template <class T> struct Frame {
  const Slot* slots;
  T* const* at;
  const char* still;
  const int64_t* repeated;  // per slot: rows of a vector or constant, one like the other; else 0
  T* const* sums;       // per parameter, for reductions
  const Columns* columns;  // per slot
  bool whole;           // every thread has all columns: blocks of rows are contiguous
  int64_t block;        // rows per block
  Ahead* ahead;

  T* place(int32_t slot, int64_t row) const {
    return still[slot] ? at[slot] : at[slot] + row * slots[slot].width;
  }
  // `rows` rows of one width, by so many rows at a time as operands that repeat have.
  Extent extent(const Instruction& i, int64_t rows, int64_t width) const {
    Extent e{rows * width, rows * width, {}};
    for (int k = 0; k < 3 && i.args[k] >= 0; ++k) {
      const int64_t there = repeated[i.args[k]];
      e.repeats[k] = there > 0 && there < rows;
      if (e.repeats[k]) e.period = std::min(e.period, there * width);
    }
    return e;
  }
};

template <class T>
OG_INLINE void run_block(const std::vector<Instruction>& run, const Frame<T>& f, int64_t row,
                         int64_t rows) {
  for (const Instruction& i : run) {
    f.ahead->fetch();
    const T* a = f.place(i.args[0], row);
    const T* b = i.args[1] < 0 ? nullptr : f.place(i.args[1], row);
    const T* c = i.args[2] < 0 ? nullptr : f.place(i.args[2], row);
    const int64_t width = f.slots[i.args[0]].width;
    const Columns columns = f.columns[i.args[0]];
    if (i.op == Op::reduce) {
      add_rows(f.sums[i.dst], rows, columns,
               [=](int64_t r, int64_t at, int64_t n) { return some(a + r * width, at, n); });
      continue;
    }
    if (i.op == Op::reduce_product) {
      add_rows(f.sums[i.dst], rows, columns, [=](int64_t r, int64_t at, int64_t n) {
        return rounded(some(a + r * width, at, n) * some(b + r * width, at, n));
      });
      continue;
    }
    T* d = f.place(i.dst, row);
    if (narrow(i.op) != 0) {  // whole rows: their columns are not split
      with_row_numbers(i.op, d, a, b, c, rows, width);
      continue;
    }
    if (f.whole) {
      execute(i.op, d, a, b, c, f.extent(i, rows, width));
      continue;
    }
    const Extent own{columns.last - columns.first, columns.last - columns.first, {}};
    const auto moves = [&](int k) {
      return i.args[k] >= 0 && f.repeated[i.args[k]] == 0 ? width : 0;
    };
    for (int64_t r = 0; r < rows && own.n > 0; ++r) {
      const int64_t at = columns.first;
      execute(i.op, d + r * width + at, a + r * moves(0) + at,
              b == nullptr ? b : b + r * moves(1) + at, c == nullptr ? c : c + r * moves(2) + at,
              own);
    }
  }
}

template <class T>
void run_pointwise(const std::vector<Instruction>& run, const Frame<T>& f, int64_t rows) {
  for (int64_t row = 0; row < rows; row += f.block)
    run_block(run, f, row, std::min(f.block, rows - row));
}

}  // namespace OG_ISA
