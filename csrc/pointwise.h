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

constexpr int64_t kBlock = 2048;  // elements an instruction works on at a time

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

template <class T>
void execute(Op op, T* d, const T* a, const T* b, const T* c, int64_t n) {
  using V = Vec<T>;
  switch (op) {
#define OG_CASE(code, name, operands, value)                 \
  case Op::name:                                             \
    return apply<operands>(d, a, b, c, n, [](V x, V y, V z) -> V { \
      (void)x, (void)y, (void)z;                             \
      return value;                                          \
    });
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
// The same of two sums at once: a b of every row, and a.
template <class T, int VECTORS>
OG_INLINE void add_both(T* products, T* sums, const T* a, const T* b, int64_t rows, int64_t width,
                        int64_t column, int64_t n) {
  Vec<T> product[VECTORS], sum[VECTORS];
  for (int v = 0; v < VECTORS; ++v) {
    product[v] = some(products, column + v * kLanes<T>, n);
    sum[v] = some(sums, column + v * kLanes<T>, n);
  }
  for (int64_t r = 0; r < rows; ++r, a += width, b += width)
    for (int v = 0; v < VECTORS; ++v) {
      const Vec<T> x = some(a, column + v * kLanes<T>, n);
      product[v] += rounded(x * some(b, column + v * kLanes<T>, n));
      sum[v] += x;
    }
  for (int v = 0; v < VECTORS; ++v) {
    store_part(products + column + v * kLanes<T>, product[v], n);
    store_part(sums + column + v * kLanes<T>, sum[v], n);
  }
}
template <class T>
OG_INLINE void add_both_rows(T* products, T* sums, const T* a, const T* b, int64_t rows,
                             int64_t width, Columns c) {
  constexpr int64_t L = kLanes<T>;
  int64_t i = c.first;
  for (; i + 4 * L <= c.last; i += 4 * L)
    add_both<T, 4>(products, sums, a, b, rows, width, i, L);
  for (; i < c.last; i += L)
    add_both<T, 1>(products, sums, a, b, rows, width, i, std::min(L, c.last - i));
}
template <class T, class F> OG_INLINE void add_rows(T* sums, int64_t rows, Columns c, F value) {
  constexpr int64_t L = kLanes<T>;
  int64_t i = c.first;
  for (; i + 4 * L <= c.last; i += 4 * L) add_columns<T, 4>(sums, rows, i, L, value);
  for (; i < c.last; i += L) add_columns<T, 1>(sums, rows, i, std::min(L, c.last - i), value);
}

// Memory that is read or written soon, asked for a few lines at a time between instructions.
class Ahead {
 public:
  void begin(bool writes) { pieces_.clear(), next_ = 0, writes_ = writes; }
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
      if (writes_)
        __builtin_prefetch(at, 1, 2);
      else
        __builtin_prefetch(at, 0, 2);
      if ((at += kLine) >= end) ++next_;
    }
  }

 private:
  static constexpr int64_t kLine = 64;
  std::vector<std::pair<const char*, const char*>> pieces_;
  size_t next_ = 0;
  int64_t lines_ = 0, each_ = 0;
  bool writes_ = false;
};

// Where the slots of a step lie for one thread: row r of a slot at `at` + r `step`. A vector or a constant
// lies there as often as a block has rows, and does not move with the row; nor does scratch of a run.
template <class T> struct Frame {
  const Slot* slots;
  T* const* at;
  const int64_t* step;
  T* const* sums;       // per parameter, for reductions
  const Columns* columns;  // per slot
  bool whole;           // every thread has all columns: blocks of rows are contiguous
  int64_t block;        // rows per block
  Ahead* ahead;

  T* place(int32_t slot, int64_t row) const { return at[slot] + row * step[slot]; }
  bool is_fixed(int32_t slot) const {
    return slots[slot].space == Space::kVector || slots[slot].space == Space::kConstant;
  }
};

// Several instructions in one pass over a block of whole rows.
template <class T>
void run_group(const Group& group, const Frame<T>& f, int64_t row, int64_t rows) {
  const Instruction *p = group.parts, &last = p[group.count - 1];
  const auto numbers = [&](int32_t slot) { return f.place(slot, row); };
  const auto vector = [&](int32_t slot) {
    return Rows<T>{f.place(slot, row), f.is_fixed(slot) ? 0 : f.slots[slot].width};
  };
  const auto result = [&](int part) {
    return group.stored[part] ? f.place(p[part].dst, row) : nullptr;
  };
  const int64_t width = f.slots[p[0].args[0]].width;
  const T* centre = p[0].op == Op::normed ? numbers(p[0].args[1]) : nullptr;
  const auto scale = [&] { return numbers(p[0].args[p[0].op == Op::normed ? 2 : 1]); };
  switch (group.kind) {
    case Group::Kind::moments:
      return with_vectors<T>(width, [&](auto count) {
        moments<T, count>(numbers(p[0].dst), numbers(p[1].dst), vector(p[0].args[0]), rows, width);
      });
    case Group::Kind::gained:
      return with_vectors<T>(width, [&](auto count) {
        gained<T, count>(numbers(p[0].dst), numbers(p[1].dst), numbers(p[2].dst),
                         vector(p[0].args[0]), vector(p[0].args[1]), vector(p[2].args[1]), rows,
                         width);
      });
    case Group::Kind::apart:
      return with_vectors<T>(width, [&](auto count) {
        apart<T, count>(result(0), numbers(last.dst), vector(p[0].args[0]), centre, scale(),
                        vector(p[1].args[1]), numbers(p[1].args[2]), rows, width);
      });
    case Group::Kind::affine: {
      const bool second = p[1].args[1] == p[0].dst;
      return with_vectors<T>(width, [&](auto count) {
        affine<T, count>(result(0), numbers(last.dst), vector(p[0].args[0]), centre, scale(),
                         vector(p[1].args[second ? 0 : 1]), vector(p[1].args[2]), rows, width);
      });
    }
    case Group::Kind::sums:
      return add_both_rows(f.sums[p[0].dst], f.sums[p[1].dst], numbers(p[0].args[0]),
                           numbers(p[0].args[1]), rows, width, f.columns[p[0].args[0]]);
    default: {  // root
      const bool scaled = p[0].op == Op::muladd;
      return each_vector<T, 0>(rows, OG_BODY {
        (void)v;
        Vec<T> value = some(numbers(p[0].args[0]), i, n);
        const Vec<T> second = some(numbers(p[0].args[1]), i, n);
        value = scaled ? rounded(value * second) + some(numbers(p[0].args[2]), i, n)
                       : value + second;
        if (group.stored[0]) put(numbers(p[0].dst), i, value, n);
        value = sqrt<T>(value);
        if (group.stored[1]) put(numbers(p[1].dst), i, value, n);
        put(numbers(last.dst), i, some(numbers(last.args[0]), i, n) / value, n);
      });
    }
  }
}

template <class T>
OG_INLINE void run_block(const std::vector<Group>& groups, const Frame<T>& f, int64_t row,
                         int64_t rows) {
  for (const Group& group : groups) {
    f.ahead->fetch();
    if (group.count > 1) {
      run_group(group, f, row, rows);
      continue;
    }
    const Instruction& i = group.parts[0];
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
      execute(i.op, d, a, b, c, rows * width);
      continue;
    }
    const int64_t at = columns.first, own = columns.last - at;
    for (int64_t r = 0; r < rows && own > 0; ++r) {
      const int64_t offset = r * width + at;
      execute(i.op, d + offset, a + offset, b == nullptr ? b : b + offset,
              c == nullptr ? c : c + offset, own);
    }
  }
}

template <class T>
void run_pointwise(const std::vector<Group>& groups, const Frame<T>& f, int64_t rows) {
  for (int64_t row = 0; row < rows; row += f.block)
    run_block(groups, f, row, std::min(f.block, rows - row));
}

}  // namespace OG_ISA
