// What the forward and the backward pass of one thread over one part have in common: the slots of
// a step and where they lie, products, and rows of the call's tensors.
#pragma once

#include "plan.h"

namespace OG_ISA {

constexpr int64_t kCachedStore = int64_t{1} << 18;  // bytes of kept values that near caches may hold

// to += from
template <class T> OG_INLINE void add_row(T* to, Numbers<T> from, int64_t n) {
  from.visit([=](auto* own) {
    const auto sum = [](Vec<T> x, Vec<T> y) { return x + y; };
    if constexpr (std::is_same_v<decltype(own), T*>)
      each(to, to, static_cast<const T*>(own), n, sum);
    else
      widen_row(to, own, n, sum);
  });
}

template <class T> class Pass {
 protected:
  Pass(const Plan& plan, const Code& code, const Packed<T>* packed, const Part& part, int thread)
      : plan_(plan), call_(plan.call), p_(plan.program), code_(code), packed_(packed), part_(part),
        thread_(thread), reverse_(part.direction == 1), rows_(part.rows()),
        block_(std::max<int64_t>(1, std::min(rows_, kBlock / p_.widest))), at_(code.slots.size()),
        sums_(p_.parameters.size()) {
    for (const Slot& slot : code.slots) {
      broadcast_.push_back(slot.space == Space::kVector || slot.space == Space::kConstant);
      const bool still = broadcast_.back() || (slot.space == Space::kTemp && (slot.index < 0 || code.brief[slot.index]));
      steps_.push_back(still ? 0 : slot.width);
    }
    set_thread(thread);
  }

  void set_thread(int thread) {
    thread_ = thread;
    columns_.clear();
    for (const Slot& slot : code_.slots) columns_.push_back(share(slot.width));
  }

  // Scratch for temporaries, and for vectors and constants, repeated for all rows of a block.
  void layout_step(Carver& carver) {
    temps_.clear();
    for (size_t i = 0; i < code_.temps.size(); ++i)
      temps_.push_back(carver.take<T>((code_.brief[i] ? block_ : rows_) * code_.temps[i]));
    for (size_t i = 0; i < code_.slots.size(); ++i)
      if (broadcast_[i]) at_[i] = carver.take<T>(block_ * code_.slots[i].width);
  }

  void layout_rows(Carver& carver, std::vector<T*>& pieces, const std::vector<int64_t>& widths,
                   int64_t rows) {
    pieces.clear();
    for (int64_t width : widths) pieces.push_back(carver.take<T>(rows * width));
  }

  void fill_step() {
    for (size_t i = 0; i < code_.slots.size(); ++i) {
      const Slot& slot = code_.slots[i];
      const Columns c = columns_[i];
      if (slot.space == Space::kTemp && slot.index >= 0) at_[i] = temps_[slot.index];
      for (int64_t r = 0; r < (broadcast_[i] ? block_ : 0); ++r) {
        T* to = at_[i] + r * slot.width;
        if (slot.space == Space::kConstant)
          std::fill(to + c.first, to + c.last, static_cast<T>(p_.constants[slot.index]));
        else if (r > 0)
          copy_row<T>(to + c.first, at_[i] + c.first, c.last - c.first);
        else
          read_vector(slot.index, to, c);
      }
    }
  }

  void read_vector(int64_t number, T* to, Columns c) const {
    copy_row(to + c.first, parameter(call_.parameters, number) + c.first, c.last - c.first);
    const Numbers<T> added = parameter(call_.added, number);
    if (added.data != nullptr) add_row(to + c.first, added + c.first, c.last - c.first);
  }
  // One of the direction's, of all those given.
  Numbers<T> parameter(const void* const* all, int64_t number) const {
    const int64_t first = part_.direction * static_cast<int64_t>(p_.parameters.size());
    return {all == nullptr ? nullptr : all[first + number], call_.parameters_stored};
  }

  int64_t time(int64_t s) const { return reverse_ ? call_.steps - 1 - s : s; }
  int64_t active(int64_t t) const { return plan_.order.active(part_, t); }
  int64_t row(int64_t r) const { return plan_.order.row_at(part_.first + r); }
  Columns share(int64_t width) const {
    return plan_.share(width, thread_, kPanel<T>);
  }

  // Offset of row r in an array (D, B, S).
  int64_t state_row(int64_t r) const {
    return (part_.direction * call_.rows + row(r)) * p_.state_sum;
  }
  // Offset of row r's output at time t in an array (T, B, D * outputs) of the given strides.
  int64_t out_row(int64_t t, int64_t r, int64_t step, int64_t stride) const {
    return t * step + row(r) * stride +
           part_.direction * (call_.all_states != 0 ? p_.state_sum : p_.states[0]);
  }
  // How many states are outputs.
  size_t outputs() const { return call_.all_states != 0 ? p_.states.size() : 1; }

  // Whether row r starts anew before step t.
  bool starts_anew(int64_t t, int64_t r) const {
    return call_.reset != nullptr && call_.reset[t * call_.reset_step + row(r) * call_.reset_row] != 0;
  }
  const T* initial(size_t state) const {
    return static_cast<const T*>(call_.initial) + p_.state_offsets[state];
  }

  // Kept values lie one after another, each (D, T, B, width) with the rows in working order; after
  // them, likewise, the states other than the output, and the output if that is rounded.
  T* kept(int64_t number, int64_t width, int64_t t) const {
    int64_t before = 0;
    const int64_t values = static_cast<int64_t>(p_.kept.size());
    for (int64_t i = 0; call_.recompute == 0 && i < std::min(number, values); ++i)
      before += p_.kept[i];
    for (int64_t i = values; i < number; ++i) before += p_.states[i - values + 1];
    const int64_t rows = call_.steps * call_.rows;
    return static_cast<T*>(call_.kept) + before * call_.directions * rows +
           (part_.direction * rows + t * call_.rows + part_.first) * width;
  }
  T* kept_state(int64_t state, int64_t t) const {
    const int64_t place = state == 0 ? static_cast<int64_t>(p_.states.size()) : state;
    return kept(static_cast<int64_t>(p_.kept.size()) + place - 1, p_.states[state], t);
  }
  // Whether a state is kept, or can be read from the outputs.
  bool is_kept(size_t state) const {
    return state >= outputs() || call_.out_stored != OG_AS_COMPUTED;
  }

  // `count` rows of consecutive places, this thread's columns of each, from(r) -> to(r).
  template <class To, class From>
  void copy_rows(int64_t count, int64_t width, To to, From from) const {
    const Columns c = share(width);
    for (int64_t r = 0; r < count; ++r) copy_row(to(r) + c.first, from(r) + c.first, c.last - c.first);
  }

  Numbers<T> start() const { return {call_.start, call_.start_stored}; }
  // Numbers of x may be stored in half precision; those of other inputs are T, or bytes.
  int32_t stored(size_t input) const { return input == 0 ? call_.x_stored : OG_AS_COMPUTED; }
  og_input given(size_t input) const {
    return input == 0 ? og_input{call_.x, call_.x_step, call_.x_row, 0} : call_.extras[input - 1];
  }
  // One that is the same at all steps is gathered once, for `rows_` rows.
  bool is_fixed(size_t input) const { return input > 0 && given(input).step == 0; }
  // Whether its rows lie in working order, one after another: numbers are then read where they lie.
  bool lie_in_order(size_t input) const {
    return plan_.order.row.empty() && (given(input).row == p_.inputs[input] || call_.rows == 1);
  }
  bool is_direct(size_t input) const {
    return given(input).bytes == 0 && stored(input) == OG_AS_COMPUTED && lie_in_order(input);
  }

  int64_t input_row(size_t input, int64_t t, int64_t r) const {
    return t * given(input).step + row(r) * given(input).row;
  }
  // Bytes of a mask.
  const uint8_t* mask_row(size_t input, int64_t t, int64_t r) const {
    return static_cast<const uint8_t*>(given(input).data) + input_row(input, t, r);
  }
  Numbers<T> given_row(size_t input, int64_t t, int64_t r) const {
    return Numbers<T>(given(input).data, stored(input)) + input_row(input, t, r);
  }
  // Its rows there; programs write to no input.
  T* own_rows(size_t input, int64_t t) const { return given_row(input, t, 0).own(); }

  void gather_input(size_t input, T* to, int64_t t, int64_t count) const {
    const int64_t width = p_.inputs[input];
    if (given(input).bytes == 0)
      return copy_rows(count, width, [&](int64_t r) { return to + r * width; },
                       [&](int64_t r) { return given_row(input, t, r); });
    if (!plan_.columns && lie_in_order(input))
      return widen(to, mask_row(input, t, 0), count * width);
    const Columns c = share(width);
    for (int64_t r = 0; r < count; ++r)
      widen(to + r * width + c.first, mask_row(input, t, r) + c.first, c.last - c.first);
  }

  // Asks for the memory of what is kept of step t, while `count` rows of another are worked on; t < 0:
  // of none.
  void look_ahead_at(int64_t t, int64_t count, bool writes) {
    ahead_.begin(writes);
    if (t < 0 || plan_.columns || !beyond_caches_) return;
    const int64_t rows = active(t);
    for (const Slot& slot : code_.slots)
      if (slot.space == Space::kKeep)
        ahead_.add(kept(slot.index, slot.width, t),
                   rows * slot.width * static_cast<int64_t>(sizeof(T)));
    int64_t groups = 0;
    for (const Stage& stage : code_.stages) groups += static_cast<int64_t>(stage.groups.size());
    ahead_.spread(groups * ((count + block_ - 1) / block_));
  }

  // Whether what is kept is more than the caches nearby hold.
  bool beyond_caches() const {
    const int64_t row = std::accumulate(p_.kept.begin(), p_.kept.end(), int64_t{0});
    const int64_t rows = call_.steps * call_.rows * call_.directions;
    return rows * row * static_cast<int64_t>(sizeof(T)) > kCachedStore;
  }

  void pointwise(const Stage& stage, int64_t rows) {
    run_pointwise<T>(stage.groups,
                     {code_.slots.data(), at_.data(), steps_.data(), sums_.data(),
                      columns_.data(), !plan_.columns, block_, &ahead_},
                     rows);
  }

  // to (rows x width) = init + terms_, this thread's columns.
  void multiply(T* to, int64_t width, const T* init, int64_t init_stride, int64_t rows) const {
    const Columns c = share(width);
    product(to, width, init, init_stride, terms_.data(), static_cast<int>(terms_.size()), rows,
            width, c.first / kPanel<T>, (c.last + kPanel<T> - 1) / kPanel<T>);
  }

  // to += left times a matrix with heads, head by head; `transposed` as it was packed.
  void add_heads(T* to, int64_t width, int64_t parameter, const T* left, int64_t stride,
                 bool transposed, int64_t rows) const {
    const Shape s = p_.parameters[parameter];
    const int64_t k = transposed ? s.rows : s.columns, wide = transposed ? s.columns : s.rows;
    const T* packed = packed_->get(part_.direction, parameter);
    for (int64_t head = 0; head < s.heads; ++head) {
      const Term<T> one{left + head * k, stride, k,
                        packed + head * Packed<T>::head_size(s, transposed)};
      T* own = to + head * wide;
      product(own, width, own, width, &one, 1, rows, wide, 0, panels<T>(wide));
    }
  }
  // A product's stage with packed matrices.
  void multiply_all(const Stage& stage, bool transposed, int64_t rows) {
    T* to = at_[stage.dst];
    const int64_t width = code_.slots[stage.dst].width;
    terms_.clear();
    for (const Factor& factor : stage.terms)
      if (!has_heads(factor)) terms_.push_back(term(factor, at_[factor.slot]));
    multiply(to, width, stage.init < 0 ? nullptr : at_[stage.init],
             stage.init < 0 ? 0 : stride(stage.init), rows);
    for (const Factor& factor : stage.terms)
      if (has_heads(factor))
        add_heads(to, width, factor.parameter, at_[factor.slot], stride(factor.slot), transposed,
                  rows);
  }

  bool has_heads(const Factor& factor) const { return p_.parameters[factor.parameter].heads > 1; }

  // The same with matrices as they lie: this thread's columns of init, or zero.
  void begin_sum(T* to, int64_t width, const T* init, int64_t init_stride, int64_t rows) {
    terms_.clear();
    multiply(to, width, init, init_stride, rows);
  }

  // A matrix as it lies.
  Numbers<T> matrix(int64_t number) const { return parameter(call_.parameters, number); }

  Term<T> term(const Factor& factor, const T* left) const {
    const int64_t width = code_.slots[factor.slot].width;
    return {left, broadcast_[factor.slot] ? 0 : width, width,
            packed_->get(part_.direction, factor.parameter)};
  }

  int64_t stride(int32_t slot) const { return broadcast_[slot] ? 0 : code_.slots[slot].width; }

  const Plan& plan_;
  const og_forward& call_;
  const og_program& p_;
  const Code& code_;
  const Packed<T>* packed_;
  Part part_;
  int thread_;
  bool reverse_;
  int64_t rows_, block_;
  std::vector<T*> at_, sums_, temps_;
  std::vector<Columns> columns_;
  std::vector<char> broadcast_;  // by slot: every row is the same
  std::vector<int64_t> steps_;  // by slot: from a row to the next; 0 where every block is at one place
  std::vector<Term<T>> terms_;
  Ahead ahead_;
  bool beyond_caches_ = beyond_caches();
};

}  // namespace OG_ISA
