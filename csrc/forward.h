// The forward pass over a whole sequence.
#pragma once

#include "pass.h"

namespace OG_ISA {

constexpr int64_t kHoistInput = 48;    // wider inputs are projected many steps at a time
constexpr int64_t kForwardRows = 256;  // rows of such a projection

template <class T> class Forward : Pass<T> {
  using Base = Pass<T>;
  using Base::active, Base::at_, Base::call_, Base::code_, Base::p_, Base::part_, Base::plan_,
      Base::rows_, Base::terms_, Base::time;

 public:
  Forward(const Plan& plan, const Packed<T>* packed, const Part& part, int thread)
      : Base(plan, plan.program.forward, packed, part, thread) {
    for (const Stage& stage : code_.stages)
      hoisted_.push_back(!plan.few && p_.inputs[0] > kHoistInput && can_hoist(stage));
    hoist_ = std::find(hoisted_.begin(), hoisted_.end(), true) != hoisted_.end();
    chunk_ = hoist_ ? std::clamp<int64_t>(kForwardRows / rows_, 1, call_.steps) : 1;
  }

  void layout(Carver& carver) {
    this->layout_step(carver);
    inputs_.clear();
    for (size_t i = 0; i < p_.inputs.size(); ++i)
      inputs_.push_back(
          carver.take<T>(is_direct(i) ? 0 : (this->is_fixed(i) ? 1 : chunk_) * rows_ * p_.inputs[i]));
    this->layout_rows(carver, prev_, p_.states, rows_);
    this->layout_rows(carver, next_, p_.states, rows_);
    this->layout_rows(carver, keep_, p_.kept, keeps() ? 0 : rows_);
    projected_.clear();
    for (size_t s = 0; s < code_.stages.size(); ++s)
      projected_.push_back(hoisted_[s] ? carver.take<T>(chunk_ * rows_ * width(code_.stages[s]))
                                       : nullptr);
  }

  // The same part, on the same scratch, for another thread's columns.
  Forward for_thread(int thread) const {
    Forward other(*this);
    other.set_thread(thread);
    return other;
  }

  using Base::fill_step;

  void run(Barrier& barrier, Turns& turns) {
    fill_step();
    go(barrier, turns);
  }

  // The steps alone, of a part that was filled.
  void go(Barrier& barrier, Turns& turns) {
    begin();
    for (int64_t s0 = 0; s0 < call_.steps; s0 += chunk_) {
      if (turns.over()) return;
      const int64_t s1 = std::min(s0 + chunk_, call_.steps);
      int64_t rows = 0;
      for (int64_t s = s0; s < s1; ++s) {
        for (size_t i = 0; i < p_.inputs.size(); ++i)
          if (!is_direct(i) && !this->is_fixed(i))
            this->gather_input(i, inputs_[i] + rows * p_.inputs[i], time(s), active(time(s)));
        rows += active(time(s));
      }
      if (hoist_) {
        if (plan_.columns) barrier.wait();
        project(rows);
      }
      int64_t offset = 0;
      for (int64_t s = s0; s < s1; ++s) {
        const int64_t t = time(s), count = active(t);
        start_anew(t, count);
        this->look_ahead_at(keeps() && s + 1 < call_.steps ? time(s + 1) : -1, count, true);
        step(t, count, offset, barrier);
        finish(t, count);
        offset += count;
      }
    }
  }

 private:
  bool keeps() const { return call_.kept != nullptr && call_.recompute == 0; }
  // An input that is projected many steps at a time must lie in one piece.
  bool is_direct(size_t input) const { return !(hoist_ && input == 0) && Base::is_direct(input); }
  bool is_input(const Factor& term) const {
    const Slot& slot = code_.slots[term.slot];
    return slot.space == Space::kInput && slot.index == 0 && !this->has_heads(term);
  }
  bool can_hoist(const Stage& stage) const {
    return (stage.init < 0 || code_.slots[stage.init].space == Space::kVector) &&
           std::any_of(stage.terms.begin(), stage.terms.end(),
                       [&](const Factor& term) { return is_input(term); });
  }
  int64_t width(const Stage& stage) const { return code_.slots[stage.dst].width; }

  // States before the first step, in both buffers: a row that starts later finds them in either.
  void begin() {
    const Numbers<T> start = this->start();
    for (size_t i = 0; i < p_.states.size(); ++i)
      for (auto* states : {&prev_, &next_})
        this->copy_rows(
            rows_, p_.states[i], [&](int64_t r) { return (*states)[i] + r * p_.states[i]; },
            [&](int64_t r) { return start + this->state_row(r) + p_.state_offsets[i]; });
    for (size_t i = 1; i < p_.inputs.size(); ++i)
      if (!is_direct(i) && this->is_fixed(i)) this->gather_input(i, inputs_[i], 0, rows_);
  }

  void start_anew(int64_t t, int64_t count) {
    if (call_.reset == nullptr) return;
    for (int64_t r = 0; r < count; ++r)
      for (size_t i = 0; this->starts_anew(t, r) && i < p_.states.size(); ++i) {
        const Columns c = this->share(p_.states[i]);
        copy_row<T>(prev_[i] + r * p_.states[i] + c.first, this->initial(i) + c.first,
                    c.last - c.first);
      }
  }

  // The input's share of the maps, for all steps of a chunk.
  void project(int64_t rows) {
    for (size_t s = 0; s < code_.stages.size(); ++s) {
      if (!hoisted_[s]) continue;
      const Stage& stage = code_.stages[s];
      terms_.clear();
      for (const Factor& factor : stage.terms)
        if (is_input(factor)) terms_.push_back(this->term(factor, inputs_[0]));
      this->multiply(projected_[s], width(stage), stage.init < 0 ? nullptr : at_[stage.init], 0,
                     rows);
    }
  }

  void step(int64_t t, int64_t count, int64_t offset, Barrier& barrier) {
    for (size_t i = 0; i < code_.slots.size(); ++i) {
      const Slot& slot = code_.slots[i];
      switch (slot.space) {
        case Space::kInput:
          at_[i] = is_direct(slot.index)
                       ? this->own_rows(slot.index, t)
                       : inputs_[slot.index] + (this->is_fixed(slot.index) ? 0 : offset * slot.width);
          break;
        case Space::kPrev: at_[i] = prev_[slot.index]; break;
        case Space::kNext: at_[i] = next_[slot.index]; break;
        case Space::kKeep:
          at_[i] = keeps() ? this->kept(slot.index, slot.width, t) : keep_[slot.index];
          break;
        default: break;
      }
    }
    for (size_t s = 0; s < code_.stages.size(); ++s) {
      const Stage& stage = code_.stages[s];
      if (stage.terms.empty()) {
        this->pointwise(stage, count);
        continue;
      }
      // All columns of the operands must be there before, and be left alone until all have read.
      if (plan_.columns) barrier.wait();
      multiply_stage(s, count, offset);
      if (plan_.columns) barrier.wait();
    }
  }

  void multiply_stage(size_t s, int64_t count, int64_t offset) {
    const Stage& stage = code_.stages[s];
    T* to = at_[stage.dst];
    const T* init = stage.init < 0 ? nullptr : at_[stage.init];
    int64_t init_stride = stage.init < 0 ? 0 : this->stride(stage.init);
    if (hoisted_[s]) {
      init = projected_[s] + offset * width(stage);
      init_stride = width(stage);
    }
    if (plan_.few) {
      this->begin_sum(to, width(stage), init, init_stride, count);
      const Columns c = this->share(width(stage));
      for (const Factor& factor : stage.terms)
        this->matrix(factor.parameter).visit([&](const auto* matrix) {
          add_transposed<T>(to, width(stage), at_[factor.slot], this->stride(factor.slot), matrix,
                            code_.slots[factor.slot].width, count, c.first, c.last);
        });
      return;
    }
    terms_.clear();
    for (const Factor& factor : stage.terms)
      if (!this->has_heads(factor) && (!hoisted_[s] || !is_input(factor)))
        terms_.push_back(this->term(factor, at_[factor.slot]));
    this->multiply(to, width(stage), init, init_stride, count);
    for (const Factor& factor : stage.terms)
      if (this->has_heads(factor))
        this->add_heads(to, width(stage), factor.parameter, at_[factor.slot],
                        this->stride(factor.slot), false, count);
  }

  // Writes the output, keeps the other states, hands out last states, and moves on.
  void finish(int64_t t, int64_t count) {
    for (size_t i = 0; i < this->outputs(); ++i) {
      const int64_t n = p_.states[i];
      const Numbers<T> out = Numbers<T>(call_.out, call_.out_stored) + p_.state_offsets[i];
      const auto to = [&](int64_t r) {
        return out + this->out_row(t, r, call_.out_step, call_.out_row);
      };
      this->copy_rows(count, n, to, [&](int64_t r) { return next_[i] + r * n; });
      const Columns c = this->share(n);
      for (int64_t r = count; r < rows_; ++r) clear_row(to(r) + c.first, c.last - c.first);
    }
    if (call_.kept != nullptr)
      for (size_t i = 0; i < p_.states.size(); ++i) {
        if (!this->is_kept(i)) continue;
        const Columns own = this->share(p_.states[i]);
        T* kept = this->kept_state(static_cast<int64_t>(i), t);
        if (own.last - own.first == p_.states[i])
          copy_row<T>(kept, next_[i], count * p_.states[i]);
        else
          this->copy_rows(count, p_.states[i], [&](int64_t r) { return kept + r * p_.states[i]; },
                          [&](int64_t r) { return next_[i] + r * p_.states[i]; });
      }
    // Forward in time a row ends at its length, backward at time 0.
    const bool at_end = t == (this->reverse_ ? 0 : call_.steps - 1);
    const Numbers<T> last(call_.last, call_.last_stored);
    const int64_t going_on = at_end ? 0 : this->reverse_ ? count : active(t + 1);
    for (int64_t r = going_on; r < count; ++r)
      for (size_t i = 0; i < p_.states.size(); ++i) {
        const Columns own = this->share(p_.states[i]);
        copy_row<T>(last + this->state_row(r) + p_.state_offsets[i] + own.first,
                    next_[i] + r * p_.states[i] + own.first, own.last - own.first);
      }
    std::swap(prev_, next_);
  }

  std::vector<bool> hoisted_;
  bool hoist_ = false;
  int64_t chunk_ = 1;
  std::vector<T*> inputs_, prev_, next_, keep_, projected_;
};

template <class T> bool run_forward(const og_forward& call, Watch& watch) {
  const Plan plan(call, kFewForward);
  const og_program& p = plan.program;
  std::vector<bool> needed(p.parameters.size(), false);
  for (const Stage& stage : p.forward.stages)
    for (const Factor& term : stage.terms) needed[term.parameter] = !plan.few;
  Packed<T> packed;
  OwnScratch scratch;
  auto all = workers<Forward<T>>(
      plan, scratch,
      [&](const Part& part, int thread) {
        return Forward<T>(plan, &packed, part, thread);
      },
      [&](Carver& carver) { packed.layout(carver, p, call.directions, needed, false); });
  return on_threads(plan.threads, [&](int thread, Barrier& barrier) {
    packed.fill(call, needed, false, thread, plan.threads);
    barrier.wait();
    // A step of little work may take less time than a look at the clock.
    Turns turns(watch, thread, call.rows * p.multiplications < kSmall ? 64 : 1);
    for (Forward<T>& part : all[thread]) part.run(barrier, turns);
  });
}

}  // namespace OG_ISA
