// What a call has to do, who does it, and where its scratch lies.
#pragma once

#include <memory>
#include <new>
#include <numeric>
#include <vector>

#include "few_rows.h"
#include "gemm.h"
#include "onegate.h"
#include "pointwise.h"
#include "program.h"
#include "threads.h"
#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace OG_ISA {

// Scratch that a thread keeps from call to call. Large blocks ask for huge pages.
class Scratch {
 public:
  Scratch() = default;
  Scratch(Scratch&& other) noexcept { *this = std::move(other); }
  Scratch& operator=(Scratch&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(align_, other.align_);
    return *this;
  }
  ~Scratch() { release(); }

  char* reserve(size_t bytes) {
    if (bytes <= size_) return data_;
    constexpr size_t kHuge = size_t{1} << 21;
    const size_t align = bytes >= kHuge ? kHuge : 64;
    const size_t size = (bytes + align - 1) / align * align;
    release();
    data_ = static_cast<char*>(::operator new(size, std::align_val_t{align}));
    align_ = align;
#if defined(__linux__)
    if (align == kHuge) madvise(data_, size, MADV_HUGEPAGE);
#endif
    size_ = size;
    return data_;
  }

 private:
  void release() {
    if (data_ != nullptr) ::operator delete(data_, std::align_val_t{align_});
    data_ = nullptr;
    size_ = 0;
  }

  char* data_ = nullptr;
  size_t size_ = 0, align_ = 0;
};

inline Scratch& thread_scratch() {
  thread_local Scratch scratch;
  return scratch;
}

// Hands out pieces of one block, first counting (no block yet), then for real.
class Carver {
 public:
  explicit Carver(char* base) : base_(base) {}

  template <class T> T* take(int64_t count) {
    T* piece = base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + used_);
    // An odd number of cache lines between pieces keeps equal offsets out of one cache set.
    const size_t bytes = (static_cast<size_t>(count) * sizeof(T) + 63) / 64 * 64;
    used_ += bytes + 64 * (1 + bytes / 64 % 2);
    if (used_ > kMost) throw std::bad_alloc();
    return piece;
  }
  size_t used() const { return used_; }

 private:
  static constexpr size_t kMost = size_t{1} << 62;  // twice of which is still a size
  char* base_;
  size_t used_ = 0;
};

// Lays out twice through `layout(Carver&)`: to measure, then for real.
template <class F> void carve(Scratch& scratch, F layout) {
  Carver counting(nullptr);
  layout(counting);
  Carver real(scratch.reserve(counting.used()));
  layout(real);
}

// The thread's scratch while a call lasts: one that begins meanwhile, on the same thread (the host may
// run anything when it checks for signals), finds none and makes its own.
class OwnScratch {
 public:
  OwnScratch() { std::swap(mine_, thread_scratch()); }
  ~OwnScratch() { std::swap(mine_, thread_scratch()); }

  operator Scratch&() { return mine_; }

 private:
  Scratch mine_;
};

// Rows [first, last) of one direction.
struct Part {
  int direction;
  int64_t first, last;
  int64_t rows() const { return last - first; }
};

// The call's rows in the order in which they are worked on: longest first, so that the rows that
// are still running are always a prefix.
struct RowOrder {
  std::vector<int64_t> row, length;  // both empty without lengths
  int64_t steps;

  RowOrder(const og_forward& call) : steps(call.steps) {
    if (call.lengths == nullptr) return;
    row.resize(call.rows);
    std::iota(row.begin(), row.end(), int64_t{0});
    std::stable_sort(row.begin(), row.end(), [&](int64_t a, int64_t b) {
      return call.lengths[a] > call.lengths[b];
    });
    for (int64_t r : row) length.push_back(call.lengths[r]);
  }

  int64_t row_at(int64_t place) const { return row.empty() ? place : row[place]; }
  int64_t length_at(int64_t place) const { return length.empty() ? steps : length[place]; }

  // How many rows of the part run at time t.
  int64_t active(const Part& part, int64_t t) const {
    if (length.empty() || t < length[part.last - 1]) return part.rows();
    const auto end = std::partition_point(length.begin() + part.first, length.begin() + part.last,
                                          [t](int64_t l) { return l > t; });
    return end - (length.begin() + part.first);
  }
};

// Threads own rows for the whole sequence; or, where there are too few rows, columns.
struct Plan {
  const og_program& program;
  const og_forward& call;
  RowOrder order;
  bool columns = false;
  bool few = false;  // so few row-steps that matrices are read, and their gradients written, once
  int threads = 1;

  Plan(const og_forward& c, int64_t few_rows) : program(*c.program), call(c), order(c) {
    const int64_t rows = call.rows * call.directions;
    const int64_t per_step = rows * program.multiplications;
    threads = threads_allowed() ? std::min(call.threads, kMaxThreads) : 1;
    const bool small = program.multiplications < kSmall;
    few = call.rows * call.steps <= (small ? kFewRowsOfSmall : few_rows);
    if (program.heads || call.recompute != 0) few = false;
    // Below these amounts of work a team costs more than it brings; who asks for a split gets it.
    if (call.split == 0 && per_step * call.steps < (few ? 200000 : 1000000)) threads = 1;
    const bool uneven = rows < 2 * threads && rows % threads != 0;
    columns = call.split == 2 || (call.split == 0 && (uneven || few) && per_step >= 100000);
    if (program.whole_rows) columns = false;
    if (!columns) threads = static_cast<int>(std::min<int64_t>(threads, rows));
    if (threads == 1) columns = false;
    few = few && (columns || threads == 1);  // the gradients have one writer
  }

  // The parts of one thread: rows of all directions, cut so that every thread has the same number
  // of row-steps; or everything, if columns are split.
  std::vector<Part> parts(int thread) const {
    std::vector<Part> result;
    if (columns) {
      for (int d = 0; d < call.directions; ++d) result.push_back({d, 0, call.rows});
      return result;
    }
    const int64_t total = std::accumulate(order.length.begin(), order.length.end(), int64_t{0});
    const int64_t all = call.directions * (order.length.empty() ? call.rows : total);
    const int64_t low = all * thread / threads, high = all * (thread + 1) / threads;
    int64_t done = 0;
    for (int d = 0; d < call.directions; ++d) {
      Part part{d, 0, 0};
      bool begun = false;
      for (int64_t place = 0; place < call.rows; ++place) {
        if (done >= low && done < high) {
          if (!begun) part.first = place;
          begun = true;
          part.last = place + 1;
        }
        done += order.length.empty() ? 1 : order.length[place];
      }
      if (begun) result.push_back(part);
    }
    return result;
  }

  // A thread's columns of a vector: whole panels.
  Columns share(int64_t width, int thread, int64_t panel) const {
    if (!columns) return {0, width};
    const int64_t panels = (width + panel - 1) / panel;
    return {std::min(width, panels * thread / threads * panel),
            std::min(width, panels * (thread + 1) / threads * panel)};
  }
};

// Packed right-hand sides, per direction and parameter; null for what is not needed.
template <class T> struct Packed {
  std::vector<T*> matrices;
  int64_t count;

  void layout(Carver& carver, const og_program& p, int directions, const std::vector<bool>& needed,
              bool transposed) {
    count = static_cast<int64_t>(p.parameters.size());
    matrices.assign(directions * count, nullptr);
    for (int d = 0; d < directions; ++d)
      for (int64_t i = 0; i < count; ++i) {
        if (!needed[i]) continue;
        const Shape s = p.parameters[i];
        matrices[d * count + i] = carver.take<T>(s.heads * head_size(s, transposed));
      }
  }

  // This thread's share of the packing. `transposed` as the backward pass needs it: gradients
  // (rows) times the matrix as it lies.
  void fill(const og_forward& call, const std::vector<bool>& needed, bool transposed, int thread,
            int threads) const {
    const og_program& p = *call.program;
    for (size_t m = 0; m < matrices.size(); ++m) {
      const int64_t i = static_cast<int64_t>(m) % count;
      if (!needed[i]) continue;
      const Shape s = p.parameters[i];
      const int64_t all = panels<T>(transposed ? s.columns : s.rows);
      const int64_t first = all * thread / threads, last = all * (thread + 1) / threads;
      for (int64_t head = 0; head < s.heads; ++head) {
        const Numbers<T> source(call.parameters[m], call.parameters_stored);
        T* to = matrices[m] + head * head_size(s, transposed);
        (source + head * s.block()).visit([&](const auto* from) {
          if (transposed)
            pack(to, from, s.rows, s.columns, s.columns, 1, first, last);
          else
            pack(to, from, s.columns, s.rows, 1, s.columns, first, last);
        });
      }
    }
  }

  static int64_t head_size(const Shape& s, bool transposed) {
    return transposed ? packed_size<T>(s.rows, s.columns) : packed_size<T>(s.columns, s.rows);
  }

  const T* get(int direction, int64_t parameter) const {
    return matrices[direction * count + parameter];
  }
};

// One worker per thread and part, each with scratch of its own; where columns are split, all threads
// work on the scratch of the first. layout(carver) lays out what the workers share.
template <class Worker, class Make, class Layout>
std::vector<std::vector<Worker>> workers(const Plan& plan, OwnScratch& scratch, Make make,
                                         Layout layout) {
  std::vector<std::vector<Worker>> all(plan.threads);
  for (int thread = 0; thread < (plan.columns ? 1 : plan.threads); ++thread)
    for (const Part& part : plan.parts(thread)) all[thread].push_back(make(part, thread));
  carve<>(scratch, [&](Carver& carver) {
    layout(carver);
    for (auto& parts : all)
      for (Worker& worker : parts) worker.layout(carver);
  });
  for (int thread = 1; plan.columns && thread < plan.threads; ++thread)
    for (const Worker& worker : all[0]) all[thread].push_back(worker.for_thread(thread));
  return all;
}

}  // namespace OG_ISA
