// A libFuzzer target: programs that nobody wrote are refused with a message, or run without harm.
//
// An input is three lines of text: a program's integers, its constants, and the seed of the call. A
// program that is taken, and is small, runs forward and backward on blocks of exactly their size, for
// the sanitizers to watch. It runs twice, with another poison in all that it has to write: unequal
// results come of what is left unwritten, or is read before it is written.
#include <cstring>

#include "running.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t most);

namespace {

constexpr int64_t kLargest = 600;  // programs beyond take too long

struct Input {
  Named program;
  uint64_t seed;
};

template <class V, class F> std::vector<V> numbers(const std::string& line, F parse) {
  std::vector<V> found;
  char* end = nullptr;
  for (const char* at = line.c_str();; at = end) {
    const V value = static_cast<V>(parse(at, &end));
    if (end == at) return found;
    found.push_back(value);
  }
}

std::vector<int64_t> integers(const std::string& line) {
  return numbers<int64_t>(line, [](const char* at, char** end) { return std::strtoll(at, end, 10); });
}

Input decode(const uint8_t* data, size_t size) {
  std::string lines[3];
  size_t line = 0;
  for (size_t i = 0; i < size && line < 3; ++i)
    if (data[i] == '\n')
      ++line;
    else
      lines[line] += static_cast<char>(data[i]);
  const std::vector<int64_t> seed = integers(lines[2]);
  return {{"the program", integers(lines[0]), numbers<double>(lines[1], std::strtod)},
          seed.empty() ? 0 : static_cast<uint64_t>(seed[0])};
}

// The length; 0 if there is no room.
size_t encode(const Input& input, uint8_t* data, size_t most) {
  std::string text;
  for (int64_t value : input.program.code) text += std::to_string(value) + ' ';
  text += '\n';
  char digits[32];
  for (double value : input.program.constants) {
    std::snprintf(digits, sizeof digits, "%.17g ", value);
    text += digits;
  }
  text += '\n' + std::to_string(static_cast<int64_t>(input.seed)) + '\n';
  if (text.size() > most) return 0;
  std::memcpy(data, text.data(), text.size());
  return text.size();
}

// Where the counted lists of a program lie, and its widths; stops where the integers stop.
class Outline {
 public:
  struct List {
    int kind;
    size_t count;                // where its count stands
    std::vector<size_t> starts;  // of its elements
    size_t end;
  };
  std::vector<List> lists;
  std::vector<size_t> widths;
  size_t constants = 0;  // where their number stands

  explicit Outline(const std::vector<int64_t>& code) : code_(code) {
    const auto width = [&] { widths.push_back(at_), take(); };
    const auto takes = [&](int count) { return [this, count] { take(count); }; };
    take();
    width();
    list(0, width);
    list(1, [&] { width(), width(); });
    list(2, width);
    constants = at_;
    take();
    for (int side = 0; side < 2; ++side) {
      list(3, [&] { take(2), width(); });
      list(4, width);
      list(5, width);
      list(6, [&] {
        const bool run = take() == 0;
        if (!run) take(2);
        list(run ? 7 : 8, takes(run ? 5 : 2));
      });
    }
    list(9, [&] { take(2), list(10, takes(2)); });
  }

  const List* pick(Random& random, int kind = -1) const {
    std::vector<const List*> fitting;
    for (const List& each : lists)
      if (!each.starts.empty() && (kind < 0 || each.kind == kind)) fitting.push_back(&each);
    if (fitting.empty()) return nullptr;
    return fitting[static_cast<size_t>(between(random, 0, int64_t(fitting.size()) - 1))];
  }

 private:
  int64_t take(int count = 1) {
    int64_t value = 0;
    for (; count > 0; --count)
      if (at_ < code_.size()) value = code_[at_++];
    return value;
  }
  template <class F> void list(int kind, F element) {
    List made{kind, at_, {}, 0};
    for (int64_t left = take(); left > 0 && at_ < code_.size(); --left) {
      made.starts.push_back(at_);
      element();
    }
    made.end = at_;
    lists.push_back(std::move(made));
  }

  const std::vector<int64_t>& code_;
  size_t at_ = 0;
};

using Code64 = std::vector<int64_t>;

Code64 element(const Code64& code, const Outline::List& list, size_t i) {
  const size_t end = i + 1 < list.starts.size() ? list.starts[i + 1] : list.end;
  return Code64(code.begin() + int64_t(list.starts[i]), code.begin() + int64_t(end));
}

void add(int64_t& count, int more) {  // at its largest it starts again at its smallest
  count = static_cast<int64_t>(static_cast<uint64_t>(count) + static_cast<uint64_t>(more));
}

size_t any(Random& random, size_t count) {
  return static_cast<size_t>(between(random, 0, static_cast<int64_t>(count) - 1));
}

int64_t extreme(Random& random) {
  constexpr int64_t all[] = {-1, 0, 1, 1 << 16, (1 << 16) + 1, 1 << 24, (1 << 24) + 1, INT32_MAX,
                             int64_t{INT32_MAX} + 1, INT64_MAX, INT64_MIN};
  return all[any(random, std::size(all))];
}

void insert(Code64& code, const Outline::List& list, const Code64& what, Random& random) {
  const size_t place = any(random, list.starts.size() + 1);
  const size_t at = place < list.starts.size() ? list.starts[place] : list.end;
  add(code[list.count], 1);  // stands before its elements
  code.insert(code.begin() + int64_t(at), what.begin(), what.end());
}

// An element of one of the lists is left out, repeated, or changes places with another one.
void change_list(Code64& code, Random& random) {
  const Outline outline(code);
  const Outline::List* list = outline.pick(random);
  if (list == nullptr) return;
  const size_t i = any(random, list->starts.size());
  const Code64 one = element(code, *list, i);
  const int64_t kind = between(random, 0, 2);
  if (kind == 0) return insert(code, *list, one, random);
  code.erase(code.begin() + int64_t(list->starts[i]),
             code.begin() + int64_t(list->starts[i] + one.size()));
  add(code[list->count], -1);
  if (kind == 1) return;
  for (const Outline::List& each : Outline(code).lists)
    if (each.count == list->count) return insert(code, each, one, random);
}

// A width is another one, wherever it stands.
void change_width(Code64& code, Random& random) {
  const Outline outline(code);
  if (outline.widths.empty()) return;
  const auto at = [&](size_t place) -> int64_t { return place < code.size() ? code[place] : 0; };
  const int64_t from = at(outline.widths[any(random, outline.widths.size())]);
  const int64_t to = between(random, 0, 15) == 0 ? extreme(random) : between(random, 1, 40);
  for (size_t place : outline.widths)
    if (from != 0 && at(place) == from) code[place] = to;
}

void change_integer(Code64& code, Random& random) {
  if (code.size() < 2) return;
  int64_t& value = code[1 + any(random, code.size() - 1)];
  switch (between(random, 0, 3)) {
    case 0: add(value, coin(random) ? 1 : -1); break;
    case 1: value = between(random, -1, 20); break;
    case 2: value = code[1 + any(random, code.size() - 1)]; break;
    default: value = extreme(random); break;
  }
}

// One constant more, one less, or another one; the program's number of them mostly follows.
void change_constants(Named& program, Random& random) {
  constexpr double all[] = {0, -0.0, 1, -1, 0.5, 1e-310, 1e300, HUGE_VAL, -HUGE_VAL, NAN};
  std::vector<double>& constants = program.constants;
  const double value = all[any(random, std::size(all))];
  const int64_t kind = between(random, 0, 2);
  if (kind == 0) constants.push_back(value);
  if (kind == 1 && !constants.empty()) constants.pop_back();
  if (kind == 2 && !constants.empty()) constants[any(random, constants.size())] = value;
  const size_t place = Outline(program.code).constants;
  if (place < program.code.size() && between(random, 0, 7) != 0)
    program.code[place] = static_cast<int64_t>(constants.size());
}

// What libFuzzer itself makes of the integers, which knows what they were compared with.
void change_bytes(Code64& code, uint64_t room) {
  const size_t length = code.size();
  code.resize(length + room);
  const size_t bytes = LLVMFuzzerMutate(reinterpret_cast<uint8_t*>(code.data()), 8 * length,
                                        8 * code.size());
  code.resize(bytes / 8);
}

void mutate(Input& input, Random& random) {
  Code64& code = input.program.code;
  for (int64_t left = between(random, 1, 4); left > 0; --left) switch (between(random, 0, 9)) {
      case 0: case 1: case 2: change_list(code, random); break;
      case 3: case 4: change_width(code, random); break;
      case 5: case 6: change_integer(code, random); break;
      case 7: change_constants(input.program, random); break;
      case 8: input.seed = random(); break;
      default: if (!code.empty()) change_bytes(code, 4); break;
    }
}

// Says at the end how many programs there were.
struct Tally {
  int64_t tried = 0, taken = 0, ran = 0;
  ~Tally() {
    std::fprintf(stderr, "%s: %ld programs, %ld of them taken, %ld run\n", og_instruction_set(),
                 long(tried), long(taken), long(ran));
  }
} tally;

bool same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

template <class T> void check(const og_program& p, Call call, Random& random) {
  const std::vector<double> found = results<T>(p, call, 1, 1);
  call.nan = false;
  const std::vector<double> again = results<T>(p, call, 1, 1);
  double largest = 1;
  for (size_t i = 0; i < found.size(); ++i) {
    if (!same(found[i], again[i]))
      fail("element " + std::to_string(i) + " of " + std::to_string(found.size()) + " is " +
           std::to_string(found[i]) + " with NaN and " + std::to_string(again[i]) +
           " with another number in what was to be written");
    largest = std::max(largest, std::isnan(found[i]) ? HUGE_VAL : std::abs(found[i]));
  }
  if (between(random, 0, 7) != 0) return;
  const std::vector<double> shared =
      results<T>(p, call, 2, static_cast<int32_t>(between(random, 0, 2)));
  // Where numbers grow without bound, the order of a sum decides.
  for (size_t i = 0; largest < 1e3 && i < found.size(); ++i)
    if (std::abs(found[i] - shared[i]) > (sizeof(T) == 8 ? 1e-9 : 1e-3) * largest)
      fail("element " + std::to_string(i) + " of " + std::to_string(found.size()) + " is " +
           std::to_string(found[i]) + " on one thread and " + std::to_string(shared[i]) + " on two");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Input input = decode(data, size);
  std::string message;
  const Program program = make(input.program, message);
  ++tally.tried;
  if (program == nullptr) return 0;
  ++tally.taken;
  if (!small_enough(*program, kLargest)) return 0;
  ++tally.ran;
  Random random(input.seed);
  Call call = draw(random);
  call.scratch = size_t{1} << 18;
  if (coin(random))
    check<float>(*program, call, random);
  else
    check<double>(*program, call, random);
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned seed) {
  Input input = decode(data, size);
  Random random(seed);
  mutate(input, random);
  const size_t made = encode(input, data, most);
  return made == 0 ? size : made;
}

// One element of the other program is put into a list of its kind.
extern "C" size_t LLVMFuzzerCustomCrossOver(const uint8_t* one, size_t one_size,
                                            const uint8_t* two, size_t two_size, uint8_t* out,
                                            size_t most, unsigned seed) {
  Input input = decode(one, one_size);
  const Input other = decode(two, two_size);
  Random random(seed);
  const Outline here(input.program.code), there(other.program.code);
  const Outline::List* from = there.pick(random);
  const Outline::List* to = from == nullptr ? nullptr : here.pick(random, from->kind);
  if (to != nullptr)
    insert(input.program.code, *to,
           element(other.program.code, *from, any(random, from->starts.size())), random);
  return encode(input, out, most);
}
