// Small matrix products for operands that live in cache: packed right-hand sides, register tiles.
#pragma once

#include <algorithm>
#include <utility>

#include "stored.h"

namespace OG_ISA {

constexpr int kTileRows = 6;  // 6 rows x 2 vectors of accumulators leave room in 16 registers
template <class T> constexpr int kPanel = 2 * kLanes<T>;

// A right-hand side of k rows is stored panel by panel, kPanel columns wide, each panel k x kPanel
// without gaps; columns beyond the width are zero.
template <class T> OG_INLINE int64_t panels(int64_t width) {
  return (width + kPanel<T> - 1) / kPanel<T>;
}
template <class T> OG_INLINE int64_t packed_size(int64_t k, int64_t width) {
  return panels<T>(width) * k * kPanel<T>;
}

// The lanes of a and then of b that are named.
template <class T, int... J> OG_INLINE Vec<T> lanes_of(Vec<T> a, Vec<T> b) {
#if defined(__clang__) || __GNUC__ >= 12
  return __builtin_shufflevector(a, b, J...);
#else
  return __builtin_shuffle(a, b, VecInt<T>{J...});
#endif
}

// Rows and columns of a square of vectors exchanged: in each step the two squares off the diagonal, half
// as wide as those of the step before.
template <class T, int D, int... J>
OG_INLINE void exchange(Vec<T>& a, Vec<T>& b, std::integer_sequence<int, J...>) {
  constexpr int L = kLanes<T>;
  const Vec<T> upper = lanes_of<T, ((J & D) != 0 ? L + J - D : J)...>(a, b);
  b = lanes_of<T, ((J & D) != 0 ? L + J : J + D)...>(a, b);
  a = upper;
}
template <class T, int D> OG_INLINE void transpose(Vec<T>* rows) {
  constexpr int L = kLanes<T>;
#pragma GCC unroll 16
  for (int i = 0; i < L; ++i)
    if ((i & D) == 0) exchange<T, D>(rows[i], rows[i + D], std::make_integer_sequence<int, L>());
  if constexpr (D > 1) transpose<T, D / 2>(rows);
}

// to[r * kPanel + j] = from[j * stride + r] for r < n and j < m, and 0 for a vector's further j.
template <class T, class S>
OG_INLINE void pack_square(T* to, const S* from, int64_t stride, int64_t n, int64_t m) {
  constexpr int64_t L = kLanes<T>;
  Vec<T> rows[L] = {};
  for (int64_t j = 0; j < m; ++j) {
    const S* line = from + j * stride;
    rows[j] = n == L ? load_wide<T>(line) : load_wide_part<T>(line, n);
  }
  transpose<T, L / 2>(rows);
  for (int64_t r = 0; r < n; ++r) store(to + r * kPanel<T>, rows[r]);
}

// Packs panels [first, last) of a matrix whose element (row, column) is at
// source[row * row_stride + column * column_stride], of which one stride is 1.
template <class T, class S>
void pack(T* packed, const S* source, int64_t k, int64_t width, int64_t row_stride,
          int64_t column_stride, int64_t first, int64_t last) {
  constexpr int64_t P = kPanel<T>, L = kLanes<T>;
  for (int64_t p = first; p < last; ++p) {
    T* panel = packed + p * k * P;
    const int64_t columns = std::min(P, width - p * P);
    const S* from = source + p * P * column_stride;
    if (columns < P) std::fill(panel, panel + k * P, T{0});
    if (column_stride == 1 && columns == P) {
      for (int64_t i = 0; i < k; ++i)
        for (int64_t v = 0; v < P; v += kLanes<T>)
          store(panel + i * P + v, load_wide<T>(from + i * row_stride + v));
      continue;
    }
    if (column_stride == 1) {
      for (int64_t i = 0; i < k; ++i) copy_wide(panel + i * P, from + i * row_stride, columns);
      continue;
    }
    for (int64_t i = 0; i < k; i += L)
      for (int64_t j = 0; j < columns; j += L) {
        const S* square = from + j * column_stride + i;
        if (i + L <= k && j + L <= columns)
          pack_square(panel + i * P + j, square, column_stride, L, L);
        else
          pack_square(panel + i * P + j, square, column_stride, std::min(L, k - i),
                      std::min(L, columns - j));
      }
  }
}

// One summand of a product: left (rows x k, row stride `stride`) times a packed matrix.
template <class T> struct Term {
  const T* left;
  int64_t stride;
  int64_t k;
  const T* packed;
};

// result[0..ROWS, columns of one panel] = init + sum of terms. VECTORS is how many vectors of the
// panel are in use; `columns` how many columns.
template <class T, int ROWS, int VECTORS>
void tile(T* result, int64_t result_stride, const T* init, int64_t init_stride,
          const Term<T>* terms, int count, int64_t panel, int64_t row, int64_t columns) {
  constexpr int L = kLanes<T>;
  Vec<T> sum[ROWS][VECTORS];
  const int64_t tail = columns - (VECTORS - 1) * L;
  const bool whole = tail == L;
  for (int i = 0; i < ROWS; ++i)
    for (int v = 0; v < VECTORS; ++v) {
      if (init == nullptr) {
        sum[i][v] = Vec<T>{};
      } else {
        const T* from = init + i * init_stride + v * L;
        sum[i][v] = (whole || v + 1 < VECTORS) ? load(from) : load_part(from, tail);
      }
    }
  for (int c = 0; c < count; ++c) {
    const int64_t k = terms[c].k, stride = terms[c].stride;
    const T* left = terms[c].left + row * stride;
    const T* right = terms[c].packed + panel * k * kPanel<T>;
    for (int64_t j = 0; j < k; ++j) {
      Vec<T> b[VECTORS];
      for (int v = 0; v < VECTORS; ++v) b[v] = load(right + j * kPanel<T> + v * L);
#pragma GCC unroll 6
      for (int i = 0; i < ROWS; ++i) {
        const Vec<T> a = splat(left[i * stride + j]);
        for (int v = 0; v < VECTORS; ++v) sum[i][v] += a * b[v];
      }
    }
  }
  for (int i = 0; i < ROWS; ++i)
    for (int v = 0; v < VECTORS; ++v) {
      T* to = result + i * result_stride + v * L;
      if (whole || v + 1 < VECTORS)
        store(to, sum[i][v]);
      else
        store_part(to, sum[i][v], tail);
    }
}

template <class T, int VECTORS, class... A> OG_INLINE void tile_of(int64_t rows, A... arguments) {
  switch (rows) {
    case 1: return tile<T, 1, VECTORS>(arguments...);
    case 2: return tile<T, 2, VECTORS>(arguments...);
    case 3: return tile<T, 3, VECTORS>(arguments...);
    case 4: return tile<T, 4, VECTORS>(arguments...);
    case 5: return tile<T, 5, VECTORS>(arguments...);
    default: return tile<T, 6, VECTORS>(arguments...);
  }
}

// Calls body(first, rows) for nearly equal blocks of at most kTileRows rows.
template <class F> OG_INLINE void row_blocks(int64_t rows, F body) {
  const int64_t blocks = (rows + kTileRows - 1) / kTileRows;
  for (int64_t b = 0, first = 0; b < blocks; ++b) {
    const int64_t last = rows * (b + 1) / blocks;
    body(first, last - first);
    first = last;
  }
}

// result (rows x width) = init + sum of terms, for panels [first, last) of the result's columns.
// init may be null (zero), or the result itself, or a single row (init_stride 0).
template <class T>
void product(T* result, int64_t result_stride, const T* init, int64_t init_stride,
             const Term<T>* terms, int count, int64_t rows, int64_t width, int64_t first,
             int64_t last) {
  for (int64_t p = first; p < last; ++p) {
    const int64_t column = p * kPanel<T>;
    const int64_t columns = std::min<int64_t>(kPanel<T>, width - column);
    row_blocks(rows, [&](int64_t row, int64_t block) {
      T* to = result + row * result_stride + column;
      const T* from = init == nullptr ? nullptr : init + row * init_stride + column;
      if (columns > kLanes<T>)
        tile_of<T, 2>(block, to, result_stride, from, init_stride, terms, count, p, row, columns);
      else
        tile_of<T, 1>(block, to, result_stride, from, init_stride, terms, count, p, row, columns);
    });
  }
}

// sums[0..ROWS, one panel] += left' right: left is k x ROWS (row stride `stride`), right one packed
// panel of k rows. `sums` is a panel of kPanel columns without gaps; `fresh` ones count as zero.
template <class T, int ROWS, int VECTORS>
void outer_tile(T* sums, const T* left, int64_t stride, const T* right, int64_t k, bool fresh) {
  constexpr int L = kLanes<T>;
  Vec<T> sum[ROWS][VECTORS];
  for (int i = 0; i < ROWS; ++i)
    for (int v = 0; v < VECTORS; ++v)
      sum[i][v] = fresh ? Vec<T>{} : load(sums + i * kPanel<T> + v * L);
  for (int64_t j = 0; j < k; ++j) {
    Vec<T> b[VECTORS];
    for (int v = 0; v < VECTORS; ++v) b[v] = load(right + j * kPanel<T> + v * L);
#pragma GCC unroll 6
    for (int i = 0; i < ROWS; ++i) {
      const Vec<T> a = splat(left[j * stride + i]);
      for (int v = 0; v < VECTORS; ++v) sum[i][v] += a * b[v];
    }
  }
  for (int i = 0; i < ROWS; ++i)
    for (int v = 0; v < VECTORS; ++v) store(sums + i * kPanel<T> + v * L, sum[i][v]);
}

template <class T, int VECTORS, class... A>
OG_INLINE void outer_tile_of(int64_t rows, A... arguments) {
  switch (rows) {
    case 1: return outer_tile<T, 1, VECTORS>(arguments...);
    case 2: return outer_tile<T, 2, VECTORS>(arguments...);
    case 3: return outer_tile<T, 3, VECTORS>(arguments...);
    case 4: return outer_tile<T, 4, VECTORS>(arguments...);
    case 5: return outer_tile<T, 5, VECTORS>(arguments...);
    default: return outer_tile<T, 6, VECTORS>(arguments...);
  }
}

constexpr int64_t kOuterRows = 96;    // columns of the left-hand side that stay in second-level cache
constexpr int64_t kOuterPanels = 16;  // panels of the right-hand side from which copying them pays

constexpr int64_t kNarrow = 4;  // columns of the right-hand side that are worked on one by one

// The same for one column of the right-hand side, VECTORS vectors of the left-hand side's columns at a
// time: a panel would be nearly empty.
template <class T, int VECTORS>
void narrow_tile(T* sums, const T* left, int64_t stride, const T* right, int64_t k, int64_t columns,
                 bool fresh) {
  constexpr int L = kLanes<T>;
  const int64_t tail = columns - (VECTORS - 1) * L;
  const bool whole = tail == L;
  Vec<T> sum[VECTORS] = {};
  for (int64_t j = 0; j < k; ++j) {
    const Vec<T> b = splat(right[j * kPanel<T>]);
    for (int v = 0; v < VECTORS; ++v) {
      const T* from = left + j * stride + v * L;
      sum[v] += (whole || v + 1 < VECTORS ? load(from) : load_part(from, tail)) * b;
    }
  }
  for (int v = 0; v < VECTORS; ++v) {
    T lanes[L];
    store(lanes, sum[v]);
    for (int64_t l = 0; l < std::min<int64_t>(L, columns - v * L); ++l) {
      T& to = sums[(v * L + l) * kPanel<T>];
      to = fresh ? lanes[l] : to + lanes[l];
    }
  }
}

template <class T>
void narrow_product(T* sums, const T* left, int64_t stride, const T* packed, int64_t k,
                    int64_t width, int64_t first, int64_t last, bool fresh) {
  constexpr int64_t L = kLanes<T>;
  for (int64_t c = 0; c < width; ++c)
    for (int64_t row = first; row < last; row += 4 * L) {
      T* to = sums + row * kPanel<T> + c;
      const int64_t columns = std::min(4 * L, last - row);
      switch ((columns + L - 1) / L) {
        case 1: narrow_tile<T, 1>(to, left + row, stride, packed + c, k, columns, fresh); break;
        case 2: narrow_tile<T, 2>(to, left + row, stride, packed + c, k, columns, fresh); break;
        case 3: narrow_tile<T, 3>(to, left + row, stride, packed + c, k, columns, fresh); break;
        default: narrow_tile<T, 4>(to, left + row, stride, packed + c, k, columns, fresh); break;
      }
    }
}

// sums += left' right for columns [first, last) of left (k x height, row stride `stride`): sums is
// stored by panels, each height x kPanel, and begins at zero if `fresh`. `scratch` has room for
// k x height numbers.
template <class T>
void outer_product(T* sums, int64_t height, const T* left, int64_t stride, T* scratch,
                   const T* packed, int64_t k, int64_t width, int64_t first, int64_t last,
                   bool fresh) {
  constexpr int64_t P = kPanel<T>;
  if (width <= std::min<int64_t>(kNarrow, P))
    return narrow_product(sums, left, stride, packed, k, width, first, last, fresh);
  for (int64_t group = first; group < last; group += kOuterRows) {
    const int64_t rows = std::min(kOuterRows, last - group);
    // The columns of a tile side by side: read once along the rows, then once for every panel.
    const bool copied = panels<T>(width) >= kOuterPanels;
    row_blocks(copied ? rows : 0, [&](int64_t row, int64_t block) {
      T* to = scratch + (group + row) * k;
      const T* from = left + group + row;
      if (block == kTileRows)  // a count that the compiler knows
        for (int64_t j = 0; j < k; ++j)
          for (int64_t i = 0; i < kTileRows; ++i) to[j * kTileRows + i] = from[j * stride + i];
      else
        for (int64_t j = 0; j < k; ++j)
          for (int64_t i = 0; i < block; ++i) to[j * block + i] = from[j * stride + i];
    });
    for (int64_t p = 0; p < panels<T>(width); ++p) {
      const T* right = packed + p * k * P;
      const bool narrow = width - p * P <= kLanes<T>;
      row_blocks(rows, [&](int64_t row, int64_t block) {
        T* to = sums + (p * height + group + row) * P;
        const T* from = copied ? scratch + (group + row) * k : left + group + row;
        const int64_t step = copied ? block : stride;
        if (narrow)
          outer_tile_of<T, 1>(block, to, from, step, right, k, fresh);
        else
          outer_tile_of<T, 2>(block, to, from, step, right, k, fresh);
      });
    }
  }
}

}  // namespace OG_ISA
