// Threads: OpenMP's pool, which torch shares when it is loaded first; plain threads where
// OG_PLAIN_THREADS is set (thread sanitizers do not know OpenMP's barriers).
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#if defined(OG_PLAIN_THREADS) || !defined(_OPENMP)
#include <thread>
#include <vector>
#else
#include <omp.h>
#endif
#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif
#if !defined(_WIN32)
#include <sched.h>
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
#if !defined(_WIN32)
      if (spins > 2000) sched_yield();
#endif
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

// Runs body(thread, barrier) on exactly `count` threads. False, with nothing done, if they cannot be
// had (inside another parallel region, say).
template <class F> bool on_threads(int count, F body) {
  Barrier barrier(count);
  if (count <= 1) {
    body(0, barrier);
    return true;
  }
#if defined(OG_PLAIN_THREADS) || !defined(_OPENMP)
  std::vector<std::thread> others;
  for (int i = 1; i < count; ++i) others.emplace_back([&, i] { body(i, barrier); });
  body(0, barrier);
  for (auto& other : others) other.join();
  return true;
#else
  bool complete = true;
#pragma omp parallel num_threads(count)
  {
    if (omp_get_num_threads() == count)
      body(omp_get_thread_num(), barrier);
    else
      complete = false;
  }
  return complete;
#endif
}
