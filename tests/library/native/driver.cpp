// Runs programs forward and backward at random sizes, for the sanitizers to watch:
//
//   driver FILE [--runs N] [--mutations N] [--every N] [--seed N]
//
// FILE: see programs.py. Every program is run N times, then N times with one of its integers changed:
// refused with a message, or run like the others; running.h says how. Several threads must give what
// one thread gives.
#include <fstream>
#include <sstream>

#include "running.h"

namespace {

constexpr int64_t kLargest = 1 << 12;  // widths beyond, after a mutation, are not run

template <class V> std::vector<V> numbers(const std::string& line) {
  std::istringstream in(line);
  std::vector<V> found;
  for (V value; in >> value;) found.push_back(value);
  return found;
}

std::vector<Named> read(const char* path) {
  std::ifstream in(path);
  if (!in) fail(std::string("cannot read ") + path);
  std::vector<Named> all;
  std::string name, code, constants;
  while (std::getline(in, name) && std::getline(in, code) && std::getline(in, constants))
    all.push_back({name, numbers<int64_t>(code), numbers<double>(constants)});
  return all;
}

// One thread, then another number of them: finite everywhere, and equal.
template <class T> void compare(const std::string& name, const og_program& p, const Call& call,
                                int32_t threads, int32_t split) {
  const std::vector<double> alone = results<T>(p, call, 1, 1);
  const std::vector<double> shared = results<T>(p, call, threads, split);
  const bool half = *std::max_element(std::begin(call.stored), std::end(call.stored)) > 0;
  const double tolerance = sizeof(T) == 8 ? 1e-9 : half ? 1e-2 : 1e-3;  // bfloat16: two last places
  double largest = 1;
  bool finite = true;
  for (double value : alone) {
    if (!half || std::isfinite(value)) largest = std::max(largest, std::abs(value));
    finite = finite && std::isfinite(value);
  }
  // A random unit may grow without bound, which says nothing of the engine.
  if (name.rfind("random", 0) == 0 && (!finite || largest > 1e3)) return;
  for (size_t i = 0; i < alone.size(); ++i) {
    const bool same = std::abs(shared[i] - alone[i]) <= tolerance * largest;
    if (std::isfinite(alone[i]) && same) continue;
    if (half && std::isinf(alone[i]) && shared[i] == alone[i]) continue;  // beyond 65504
    fail(name + ": element " + std::to_string(i) + " of " + std::to_string(alone.size()) + " is " +
         std::to_string(alone[i]) + " on one thread and " + std::to_string(shared[i]) + " on " +
         std::to_string(threads) + ", split " + std::to_string(split) + ", " +
         std::to_string(call.steps) + " steps, " + std::to_string(call.rows) + " rows, " +
         std::to_string(8 * sizeof(T)) + " bits");
  }
}

// Sizes that overflow, alone or multiplied, are refused before anything is touched.
void refuses_too_large(const og_program& p, Random& random) {
  const int64_t sizes[] = {int64_t{1} << 40, int64_t{1} << 50, int64_t{1} << 62, INT64_MAX};
  const int64_t steps = sizes[between(random, 0, 3)], rows = sizes[between(random, 0, 3)];
  char byte = 0, message[256] = "";
  const std::vector<const void*> parameters(2 * p.parameters.size() + 1, &byte);
  const std::vector<void*> grads(parameters.size(), &byte);
  og_backward b{};
  b.forward.program = &p;
  b.forward.bits = coin(random) ? 32 : 64;
  b.forward.directions = 2;
  b.forward.threads = INT32_MAX;
  b.forward.steps = steps;
  b.forward.rows = rows;
  b.forward.x = b.forward.start = &byte;
  b.forward.out = b.forward.last = b.forward.kept = b.grad_start = &byte;
  b.forward.parameters = parameters.data();
  b.grad_parameters = grads.data();
  if (og_run_forward(&b.forward, message, sizeof message) != 1 ||
      og_run_backward(&b, message, sizeof message) != 1 || message[0] == 0)
    fail("a run of " + std::to_string(steps) + " steps and " + std::to_string(rows) +
         " rows is not refused");
  if (og_kept_size(&p, 2, steps, rows) != -1) fail("what is kept is not too large");
}

Named mutated(Named named, Random& random) {
  const size_t place = static_cast<size_t>(
      between(random, 1, static_cast<int64_t>(named.code.size()) - 1));
  int64_t& value = named.code[place];
  switch (between(random, 0, 4)) {
    case 0: value += coin(random) ? 1 : -1; break;
    case 1: value = between(random, -1, 20); break;
    case 2: value = named.code[static_cast<size_t>(between(
                random, 1, static_cast<int64_t>(named.code.size()) - 1))]; break;
    case 3: value = coin(random) ? between(random, 0, kLargest) : 1 << 24; break;
    default: value = static_cast<int64_t>(random()); break;
  }
  return named;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) fail("usage: driver FILE [--runs N] [--mutations N] [--every N] [--seed N]");
  int64_t runs = 10, mutations = 100, every = 1, seed = 1;
  for (int i = 2; i + 1 < argc; i += 2) {
    const std::string option = argv[i];
    const int64_t value = std::atoll(argv[i + 1]);
    if (option == "--runs") runs = value;
    else if (option == "--mutations") mutations = value;
    else if (option == "--every") every = value;
    else if (option == "--seed") seed = value;
    else fail("unknown option " + option);
  }
  Random random(static_cast<uint64_t>(seed));
  int64_t programs = 0, ran = 0, refused = 0, taken = 0;
  const std::vector<Named> all = read(argv[1]);
  for (size_t i = static_cast<size_t>(seed % every); i < all.size(); i += static_cast<size_t>(every)) {
    const Named& named = all[i];
    std::string message;
    const Program program = make(named, message);
    if (program == nullptr) fail(named.name + " is refused: " + message);
    ++programs;
    refuses_too_large(*program, random);
    for (int64_t run = 0; run < runs; ++run, ++ran) {
      const Call call = draw(random);
      const auto threads = static_cast<int32_t>(between(random, 2, 4));
      const auto split = static_cast<int32_t>(between(random, 0, 2));
      if (coin(random)) compare<float>(named.name, *program, call, threads, split);
      else compare<double>(named.name, *program, call, threads, split);
    }
    for (int64_t mutation = 0; mutation < mutations; ++mutation) {
      const Program other = make(mutated(named, random), message);
      if (other == nullptr) {
        ++refused;
        continue;
      }
      ++taken;
      const Call call = draw(random);
      const auto threads = static_cast<int32_t>(between(random, 1, 3));
      const auto split = static_cast<int32_t>(between(random, 0, 2));
      if (!small_enough(*other, kLargest)) continue;
      if (coin(random)) results<float>(*other, call, threads, split);
      else results<double>(*other, call, threads, split);
    }
  }
  std::printf("%s: %ld programs, %ld runs; of changed programs %ld were refused, %ld were taken\n",
              og_instruction_set(), long(programs), long(ran), long(refused), long(taken));
  return 0;
}
