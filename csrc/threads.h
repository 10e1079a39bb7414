// Threads: those of the OpenMP runtime that the process has, which is torch's; plain threads where
// there is none, or where OG_PLAIN_THREADS is set (thread sanitizers do not know OpenMP's barriers).
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <system_error>
#include <thread>
#include <vector>
#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

#include "onegate.h"

// All threads of a team wait for one another. Spins, then gives way: a core may be busy elsewhere.
class Barrier {
 public:
  explicit Barrier(int count) : count_(count) {}

  void wait() {
    if (count_ == 1) return;
    const uint32_t round = round_.load(std::memory_order_relaxed);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == count_) {
      arrived_.store(0, std::memory_order_relaxed);
      round_.store(round + 1, std::memory_order_release);
      return;
    }
    for (int spins = 0; round_.load(std::memory_order_acquire) == round; ++spins) {
#if defined(__x86_64__) || defined(__i386__)
      _mm_pause();
#endif
      if (spins > 2000) std::this_thread::yield();
    }
  }

 private:
  const int count_;
  std::atomic<int> arrived_{0};
  std::atomic<uint32_t> round_{0};
};

// Asks the host, several times a second, whether a run is to end. Only the calling thread asks.
class Watch {
 public:
  explicit Watch(const og_host* host) : host_(host) {}

  void leave() {
    if (host_ != nullptr) left_ = host_->leave();
  }
  void enter() {
    if (host_ != nullptr) host_->enter(left_);
  }
  bool ended() const { return end_.load(std::memory_order_relaxed) != INT64_MAX; }

 private:
  friend class Turns;
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kPause{50};

  void ask(int64_t turn) {
    if (ended() || Clock::now() < next_) return;
    enter();
    if (host_->check() != 0) end_.store(turn + 1, std::memory_order_relaxed);
    leave();
    next_ = Clock::now() + kPause;
  }

  const og_host* const host_;
  void* left_ = nullptr;
  std::atomic<int64_t> end_{INT64_MAX};  // the turn before which all leave
  Clock::time_point next_ = Clock::now() + kPause;
};

// The turns (chunks of steps) of one thread. Where threads wait for one another within a turn, all of
// them leave before the same one: it is set a turn ahead, before a barrier that they all pass.
class Turns {
 public:
  // every: turns from one look at the clock to the next.
  Turns(Watch& watch, int thread, int64_t every)
      : watch_(watch), asks_(thread == 0 && watch.host_ != nullptr && watch.host_->check != nullptr),
        every_(every) {}

  // Begins a turn; true: the run ends before it.
  bool over() {
    if (asks_ && --wait_ == 0) {
      wait_ = every_;
      watch_.ask(turn_);
    }
    return turn_++ >= watch_.end_.load(std::memory_order_relaxed);
  }

 private:
  Watch& watch_;
  const bool asks_;
  const int64_t every_;
  int64_t wait_ = every_, turn_ = 0;
};

// Whether OpenMP's pool may be used: not in a process forked from one that had used it.
bool threads_allowed();

// The pool of an OpenMP runtime, by the functions that GCC's and LLVM's runtimes share.
struct Pool {
  void (*parallel)(void (*body)(void*), void* data, unsigned count, unsigned flags);
  int (*count)();
  int (*thread)();
};

// Null where the process has none. It is looked up, not linked: a library that brought a runtime of
// its own would have a second pool, which fights with torch's for the cores.
const Pool* shared_pool();

// Runs body(thread, barrier) on exactly `count` threads. False, with nothing done, if they cannot be
// had (inside another parallel region, say).
template <class F> bool on_threads(int count, F body) {
  Barrier barrier(count);
  if (count <= 1) {
    body(0, barrier);
    return true;
  }
  if (const Pool* pool = shared_pool()) {
    struct Team {
      const Pool* pool;
      int count;
      F& body;
      Barrier& barrier;
      std::atomic<bool> complete;
    } team{pool, count, body, barrier, {true}};
    const auto run = [](void* data) noexcept {
      Team& t = *static_cast<Team*>(data);
      if (t.pool->count() == t.count)
        t.body(t.pool->thread(), t.barrier);
      else
        t.complete = false;
    };
    pool->parallel(run, &team, static_cast<unsigned>(count), 0);
    return team.complete;
  }
  // None begins before all are there: they wait for one another.
  std::atomic<int> go{0};
  std::vector<std::thread> others;
  const auto join = [&](int word) {
    go = word;
    for (auto& other : others) other.join();
  };
  try {
    others.reserve(static_cast<size_t>(count));
    for (int i = 1; i < count; ++i)
      others.emplace_back([&, i] {
        while (go == 0) std::this_thread::yield();
        if (go == 1) body(i, barrier);
      });
  } catch (const std::system_error&) {
    join(2);
    return false;
  }
  go = 1;
  body(0, barrier);
  join(1);
  return true;
}
