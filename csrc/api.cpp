// The C interface: checks what it is given, picks the instruction set, turns failures into messages.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <string>
#if !defined(_WIN32)
#include <dlfcn.h>
#include <pthread.h>
#endif
#if defined(OG_HAVE_AVX2)
#include <cpuid.h>
#endif

#include "isa.h"
#include "onegate.h"
#include "program.h"
#include "threads.h"

namespace baseline { extern const Engine engine; }
#if defined(OG_HAVE_AVX2)
namespace avx2 { extern const Engine engine; }
#endif
#if defined(OG_HAVE_AVX512)
namespace avx512 { extern const Engine engine; }
#endif

namespace {

#if !defined(OG_HAVE_AVX2)
struct Cpu {};
#elif !defined(_WIN32)
// Not every compiler's __builtin_cpu_supports knows it.
bool f16c() {
  unsigned a, b, c, d;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c >> 29 & 1) != 0;
}

struct Cpu {
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && f16c();
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
};
#else
// Windows' linker has no support for __builtin_cpu_supports: the same from the processor itself, and
// from the registers that the system saves (XCR0).
struct Cpu {
  bool avx2 = false, avx512 = false;

  Cpu() {
    unsigned a, b, c, d;
    if (__get_cpuid(1, &a, &b, &c, &d) == 0 || !bit(c, 27)) return;
    const bool fma = bit(c, 12) && bit(c, 29);  // and F16C
    const unsigned saved = xcr0();
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return;
    avx2 = fma && bit(b, 5) && (saved & 0x6) == 0x6;
    avx512 = avx2 && bit(b, 16) && bit(b, 17) && bit(b, 31) && (saved & 0xe6) == 0xe6;
  }

 private:
  static bool bit(unsigned word, int place) { return (word >> place & 1) != 0; }
  static unsigned xcr0() {
    unsigned low, high;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
  }
};
#endif

// The widest set that the machine has; ONEGATE_ISA=baseline (or avx2) asks for less.
const Engine& choose() {
  const char* asked = std::getenv("ONEGATE_ISA");
  const std::string most = asked == nullptr ? "" : asked;
  [[maybe_unused]] const Cpu cpu;
#if defined(OG_HAVE_AVX512)
  if ((most.empty() || most == "avx512") && cpu.avx512) return avx512::engine;
#endif
#if defined(OG_HAVE_AVX2)
  if (most != "baseline" && cpu.avx2) return avx2::engine;
#endif
  return baseline::engine;
}

const Engine& engine() {
  static const Engine& chosen = choose();
  return chosen;
}

std::atomic<bool> forked{false};

void say(const std::string& text, char* message, int64_t size) {
  if (message == nullptr || size <= 0) return;
  const size_t n = std::min(text.size(), static_cast<size_t>(size - 1));
  std::memcpy(message, text.data(), n);
  message[n] = 0;
}

// Whether a tensor of T steps and B rows, all strides as given, is one that memory could hold.
bool holds(const og_forward& c, int64_t step, int64_t row) {
  const auto extent = [](int64_t count, int64_t stride) {
    return times(count, stride < 0 ? times(stride, -1) : stride);
  };
  return plus(extent(c.steps, step), extent(c.rows, row)) <= kMaxTensor;
}

// What is said of how tensors are stored, and cannot be.
std::string stored_fault(const og_forward& c, int32_t grad_x) {
  const std::pair<const char*, int32_t> all[] = {
      {"x", c.x_stored}, {"start", c.start_stored}, {"parameters", c.parameters_stored},
      {"out", c.out_stored}, {"last", c.last_stored}, {"grad_x", grad_x}};
  for (const auto& [name, stored] : all) {
    if (stored < OG_AS_COMPUTED || stored > OG_FLOAT16)
      return std::string(name) + " is stored as " + std::to_string(stored) + ", not 0, 1 or 2";
    if (stored != OG_AS_COMPUTED && c.bits != 32)
      return std::string(name) + " is stored in half precision, which goes with 32 bits";
  }
  return "";
}

// What would make the engine touch memory that it should not.
std::string fault(const og_forward& c, bool backward) {
  if (c.program == nullptr) return "there is no program";
  if (c.bits != 32 && c.bits != 64) return "bits is " + std::to_string(c.bits) + ", not 32 or 64";
  if (c.directions != 1 && c.directions != 2)
    return "directions is " + std::to_string(c.directions) + ", not 1 or 2";
  if (c.threads < 1) return "threads is " + std::to_string(c.threads) + ", at least 1 is needed";
  if (c.split < 0 || c.split > 2) return "split is " + std::to_string(c.split) + ", not 0, 1 or 2";
  if (c.steps < 1 || c.rows < 1)
    return "a run needs at least one step and one row, got " + std::to_string(c.steps) +
           " steps and " + std::to_string(c.rows) + " rows";
  if (!c.program->fits(c.directions, c.steps, c.rows))
    return std::to_string(c.steps) + " steps of " + std::to_string(c.rows) +
           " rows are more than a run of this program can have";
  if (!holds(c, c.x_step, c.x_row) || !holds(c, c.out_step, c.out_row))
    return "strides reach further than memory";
  const bool rounded = c.out_stored != OG_AS_COMPUTED;
  if (c.x == nullptr || c.start == nullptr || (c.out == nullptr && !(backward && rounded)) ||
      c.parameters == nullptr)
    return "a tensor is missing";
  if (!backward && c.last == nullptr) return "there is nowhere to put the last states";
  if (backward && c.kept == nullptr && (rounded || c.program->kept_per_row(c.recompute != 0) > 0))
    return "the forward pass kept nothing for the backward pass";
  const size_t parameters = c.program->parameters.size() * static_cast<size_t>(c.directions);
  for (size_t i = 0; i < parameters; ++i)
    if (c.parameters[i] == nullptr)
      return "parameter " + std::to_string(i) + " is missing";
    else if (c.added != nullptr && c.added[i] != nullptr &&
             c.program->parameters[i % c.program->parameters.size()].columns != 0)
      return "parameter " + std::to_string(i) + " is a matrix, to which nothing is added";
  for (size_t i = 1; i < c.program->inputs.size(); ++i) {
    if (c.extras == nullptr || c.extras[i - 1].data == nullptr)
      return "input " + std::to_string(i) + " is missing";
    if (!holds(c, c.extras[i - 1].step, c.extras[i - 1].row))
      return "strides reach further than memory";
  }
  if (c.reset != nullptr) {
    if (c.directions != 1) return "a reset is for one direction";
    if (c.initial == nullptr) return "there are no states to start anew from";
    if (!holds(c, c.reset_step, c.reset_row)) return "strides reach further than memory";
  }
  if (c.lengths != nullptr)
    for (int64_t r = 0; r < c.rows; ++r)
      if (c.lengths[r] < 1 || c.lengths[r] > c.steps)
        return "length " + std::to_string(c.lengths[r]) + " of row " + std::to_string(r) +
               " is not between 1 and the " + std::to_string(c.steps) + " steps";
  return "";
}

// What work(watch) says is wrong, as a message. The host is met outside of all handlers: it may end the
// thread then, which is no failure of the work.
template <class F>
int32_t guarded(char* message, int64_t size, const og_host* host, F work) {
  Watch watch(host);
  std::string problem;
  watch.leave();
  try {
    problem = work(watch);
  } catch (const std::bad_alloc&) {
    problem = "out of memory for scratch";
  } catch (const std::exception& e) {
    problem = e.what();
  } catch (...) {
    problem = "unknown failure";
  }
  watch.enter();
  say(problem, message, size);
  return watch.ended() ? 2 : problem.empty() ? 0 : 1;
}

}  // namespace

bool threads_allowed() {
#if !defined(_WIN32)
  static std::once_flag once;
  std::call_once(once, [] { pthread_atfork(nullptr, nullptr, [] { forked = true; }); });
#endif
  return !forked;
}

const Pool* shared_pool() {
#if defined(OG_PLAIN_THREADS) || defined(_WIN32)
  return nullptr;
#else
  static const Pool pool = [] {
    Pool p;
    const auto find = [](auto& function, const char* name) {
      void* const address = dlsym(RTLD_DEFAULT, name);
      std::memcpy(&function, &address, sizeof function);
    };
    find(p.parallel, "GOMP_parallel");
    find(p.count, "omp_get_num_threads");
    find(p.thread, "omp_get_thread_num");
    return p;
  }();
  return pool.parallel != nullptr && pool.count != nullptr && pool.thread != nullptr ? &pool : nullptr;
#endif
}

int32_t og_format(void) { return static_cast<int32_t>(kFormat); }

int64_t og_call_size(void) { return static_cast<int64_t>(sizeof(og_backward)); }

const char* og_instruction_set(void) { return engine().name; }

const char* og_operation(int32_t opcode, int32_t* operands, int32_t* numbers) {
  if (opcode < 0 || opcode >= kOps) return nullptr;
  if (operands != nullptr) *operands = kOperations[opcode].operands;
  if (numbers != nullptr) *numbers = narrow(static_cast<Op>(opcode));
  return kOperations[opcode].name;
}

og_program* og_program_new(const int64_t* code, int64_t length, const double* constants,
                           int64_t constant_count, char* message, int64_t size) {
  std::string error;
  og_program* program = nullptr;
  if (code == nullptr || length < 0 || constant_count < 0 ||
      (constants == nullptr && constant_count > 0))
    error = "there is no program";
  else
    program = read_program(code, length, constants, constant_count, error);
  say(error, message, size);
  return program;
}

void og_program_free(og_program* program) { delete program; }

int64_t og_kept_size(const og_program* program, int64_t directions, int64_t steps, int64_t rows) {
  if (program == nullptr) return 0;
  if (directions < 0 || steps < 0 || rows < 0 || !program->fits(directions, steps, rows)) return -1;
  return program->kept_per_row(false) * directions * steps * rows;
}

void og_fill_mask(void* to, int32_t bits, int64_t count, uint32_t first, uint32_t second,
                  uint32_t last_zero, double other) {
  if (bits == 8)
    engine().mask8(static_cast<uint8_t*>(to), count, first, second, last_zero, 1);
  else if (bits == 32)
    engine().mask32(static_cast<float*>(to), count, first, second, last_zero,
                    static_cast<float>(other));
  else
    engine().mask64(static_cast<double*>(to), count, first, second, last_zero, other);
}

int32_t og_run_forward(const og_forward* call, char* message, int64_t size) {
  const og_host* host = call == nullptr ? nullptr : call->host;
  return guarded(message, size, host, [&](Watch& watch) -> std::string {
    if (call == nullptr) return "there is no call";
    std::string problem = fault(*call, false);
    if (problem.empty()) problem = stored_fault(*call, OG_AS_COMPUTED);
    if (!problem.empty()) return problem;
    const auto pass = call->bits == 32 ? engine().forward32 : engine().forward64;
    if (pass(*call, watch)) return "";
    og_forward alone = *call;
    alone.threads = 1;
    return pass(alone, watch) ? "" : "no thread could be had";
  });
}

int32_t og_run_backward(const og_backward* call, char* message, int64_t size) {
  const og_host* host = call == nullptr ? nullptr : call->forward.host;
  return guarded(message, size, host, [&](Watch& watch) -> std::string {
    if (call == nullptr) return "there is no call";
    std::string problem = fault(call->forward, true);
    if (problem.empty()) problem = stored_fault(call->forward, call->grad_x_stored);
    if (!problem.empty()) return problem;
    if (!holds(call->forward, call->grad_out_step, call->grad_out_row))
      return "strides reach further than memory";
    if (call->grad_start == nullptr || call->grad_parameters == nullptr ||
        (call->forward.reset != nullptr && call->grad_initial == nullptr))
      return "there is nowhere to put the gradients";
    const size_t parameters =
        call->forward.program->parameters.size() * static_cast<size_t>(call->forward.directions);
    for (size_t i = 0; i < parameters; ++i)
      if (call->grad_parameters[i] == nullptr)
        return "there is nowhere to put the gradient of parameter " + std::to_string(i);
    const auto pass = call->forward.bits == 32 ? engine().backward32 : engine().backward64;
    if (pass(*call, watch)) return "";
    og_backward alone = *call;
    alone.forward.threads = 1;
    return pass(alone, watch) ? "" : "no thread could be had";
  });
}

og_stream* og_stream_new(const og_forward* call, char* message, int64_t size) {
  og_stream* stream = nullptr;
  guarded(message, size, nullptr, [&](Watch&) -> std::string {
    if (call == nullptr) return "there is no call";
    if (call->steps != 1 || call->directions != 1 || call->kept != nullptr || call->lengths != nullptr)
      return "a stream has one step, one direction, nothing kept and no lengths";
    if (call->x_stored != OG_AS_COMPUTED || call->start_stored != OG_AS_COMPUTED ||
        call->parameters_stored != OG_AS_COMPUTED || call->out_stored != OG_AS_COMPUTED ||
        call->last_stored != OG_AS_COMPUTED)
      return "a stream's tensors are stored as they are computed";
    og_forward alone = *call;
    alone.threads = 1;
    const std::string problem = fault(alone, false);
    if (problem.empty())
      stream = alone.bits == 32 ? engine().stream32(alone) : engine().stream64(alone);
    return problem;
  });
  return stream;
}

void og_stream_free(og_stream* stream) { delete stream; }

void og_stream_step(og_stream* const* streams, int64_t count) {
  for (int64_t i = 0; i < count; ++i) streams[i]->step();
}
