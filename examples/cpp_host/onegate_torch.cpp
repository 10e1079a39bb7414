// The operator of exported models for hosts without Python: torch.ops.onegate.forward, registered
// from C++. A call carries its whole program, so that units of one's own run too.
//
// Link a host with this library (target onegate_torch) before it loads a model. Where Python has
// imported onegate the operator is there already: load this library in processes without it only.
#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <torch/library.h>

#include <cctype>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "onegate.h"

namespace {

// The lists of numbers at the top level of a JSON object; all else is skipped, strings as strings.
class Key {
 public:
  explicit Key(const std::string& text) : text_(text) {}

  std::vector<std::string> numbers(const std::string& name) {
    at_ = 0;
    int depth = 0;
    while (at_ < text_.size()) {
      const char c = text_[at_++];
      if (c == '{' || c == '[') ++depth;
      if (c == '}' || c == ']') --depth;
      if (c != '"') continue;
      const std::string word = string();
      if (depth == 1 && word == name && skip(':')) return list();
    }
    TORCH_CHECK(false, "onegate: the model's operator has no ", name,
                ": export the model again with this version of onegate");
  }

 private:
  std::string string() {  // after its first quotation mark
    std::string word;
    while (at_ < text_.size() && text_[at_] != '"') {
      if (text_[at_] == '\\') ++at_;
      if (at_ < text_.size()) word += text_[at_++];
    }
    ++at_;
    return word;
  }

  bool skip(char wanted) {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
    if (at_ >= text_.size() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }

  std::vector<std::string> list() {
    TORCH_CHECK(skip('['), "onegate: the model's operator holds no list of numbers");
    std::vector<std::string> found;
    if (skip(']')) return found;
    do {
      std::string number;
      while (at_ < text_.size() && text_[at_] != ',' && text_[at_] != ']') number += text_[at_++];
      found.push_back(number);
    } while (skip(','));
    TORCH_CHECK(skip(']'), "onegate: the list of a model's operator has no end");
    return found;
  }

  const std::string& text_;
  size_t at_ = 0;
};

constexpr int64_t kMessage = 512;

struct Program {
  std::unique_ptr<og_program, decltype(&og_program_free)> native{nullptr, og_program_free};
  int64_t input = 0, output = 0, width = 0;           // of x, of the first state, of all states
  std::vector<std::vector<int64_t>> parameters;       // shapes
};

std::shared_ptr<const Program> read(const std::string& key) {
  std::vector<int64_t> code;
  for (const auto& n : Key(key).numbers("program")) code.push_back(std::strtoll(n.c_str(), nullptr, 10));
  std::vector<double> constants;
  for (const auto& n : Key(key).numbers("constants")) constants.push_back(std::strtod(n.c_str(), nullptr));
  char message[kMessage] = "";
  auto made = std::make_shared<Program>();
  made->native.reset(og_program_new(code.data(), static_cast<int64_t>(code.size()), constants.data(),
                                    static_cast<int64_t>(constants.size()), message, kMessage));
  TORCH_CHECK(made->native != nullptr, "onegate refuses the program: ", message);
  // It was checked above: format, inputs, states and parameters, each with its number first.
  const int64_t* at = code.data() + 1;
  TORCH_CHECK(at[0] == 1, "onegate: a host runs units that read x alone, this one reads ", at[0], " inputs");
  made->input = at[1];
  at += 2;
  const int64_t states = *at++;
  made->output = at[0];
  for (int64_t i = 0; i < states; ++i) made->width += *at++;
  for (int64_t left = *at++; left > 0; --left, at += 3) {
    const int64_t rows = at[0], columns = at[1], heads = at[2];
    made->parameters.push_back(columns == 0 ? std::vector<int64_t>{rows}
                               : heads == 1 ? std::vector<int64_t>{rows, columns}
                                            : std::vector<int64_t>{heads, rows, columns});
  }
  return made;
}

std::shared_ptr<const Program> find(const std::string& key) {
  static std::mutex lock;
  static std::unordered_map<std::string, std::shared_ptr<const Program>> known;
  const std::lock_guard<std::mutex> held(lock);
  auto& entry = known[key];
  if (entry == nullptr) entry = read(key);
  return entry;
}

void check(const char* name, const at::Tensor& t, at::IntArrayRef shape, at::ScalarType type) {
  TORCH_CHECK(t.sizes() == shape && t.scalar_type() == type && t.is_cpu(), "onegate: ", name, " is ",
              t.sizes(), ", ", t.scalar_type(), " on ", t.device(), "; expected ", shape, ", ", type,
              " on cpu");
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> forward(
    const at::Tensor& x_, const at::Tensor& start_, at::TensorList parameters_,
    const std::optional<at::Tensor>& lengths_, std::string key, bool keep,
    const std::optional<at::Tensor>& reset, bool all_states, bool recompute) {
  TORCH_CHECK(!reset.has_value() && !all_states, "onegate: a host runs neither reset= nor return_states=");
  const auto program = find(key);
  const auto type = x_.scalar_type();
  TORCH_CHECK(type == at::kFloat || type == at::kDouble, "onegate: x is ", type,
              ", expected float32 or float64");
  TORCH_CHECK(x_.dim() == 3 && start_.dim() == 3, "onegate: x and start have three axes each");
  const int64_t steps = x_.size(0), rows = x_.size(1), directions = start_.size(0);
  check("x", x_, {steps, rows, program->input}, type);
  check("start", start_, {directions, rows, program->width}, type);
  const size_t own = program->parameters.size();
  TORCH_CHECK(parameters_.size() == own * static_cast<size_t>(directions), "onegate: ",
              parameters_.size(), " parameters came, expected ", own * static_cast<size_t>(directions));
  const at::Tensor x = x_.contiguous(), start = start_.contiguous();
  std::vector<at::Tensor> parameters;
  std::vector<const void*> places;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    check("a parameter", parameters_[i], program->parameters[i % own], type);
    parameters.push_back(parameters_[i].contiguous());
    places.push_back(parameters.back().const_data_ptr());
  }
  at::Tensor lengths;
  if (lengths_.has_value() && lengths_->defined()) {
    check("lengths", *lengths_, {rows}, at::kLong);
    lengths = lengths_->contiguous();
  }
  const at::Tensor out = at::empty({steps, rows, directions * program->output}, x.options());
  const at::Tensor last = at::empty_like(start);
  const int64_t size = keep ? og_kept_size(program->native.get(), directions, steps, rows) : 0;
  TORCH_CHECK(size >= 0, "onegate: ", steps, " steps of ", rows, " rows are too many");
  const at::Tensor kept = at::empty({size}, x.options());

  og_forward call{};
  call.program = program->native.get();
  call.bits = type == at::kFloat ? 32 : 64;
  call.directions = static_cast<int32_t>(directions);
  call.threads = at::get_num_threads();
  call.steps = steps;
  call.rows = rows;
  call.lengths = lengths.defined() ? lengths.const_data_ptr<int64_t>() : nullptr;
  call.x = x.const_data_ptr();
  call.x_step = x.stride(0);
  call.x_row = x.stride(1);
  call.start = start.const_data_ptr();
  call.out = out.mutable_data_ptr();
  call.out_step = out.stride(0);
  call.out_row = out.stride(1);
  call.last = last.mutable_data_ptr();
  call.recompute = recompute;
  call.kept = keep ? kept.mutable_data_ptr() : nullptr;
  call.parameters = places.data();
  char message[kMessage] = "";
  TORCH_CHECK(og_run_forward(&call, message, kMessage) == 0, "onegate: ", message);
  return {out, last, kept};
}

}  // namespace

// As in onegate/engines/cpu/operator.py.
TORCH_LIBRARY(onegate, m) {
  m.def("forward(Tensor x, Tensor start, Tensor[] parameters, Tensor? lengths, str program, "
        "bool keep, Tensor? reset=None, bool all_states=False, bool recompute=False) "
        "-> (Tensor, Tensor, Tensor)");
}

TORCH_LIBRARY_IMPL(onegate, CPU, m) { m.impl("forward", &forward); }
