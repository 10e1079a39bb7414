// What the forward pass did not keep, computed anew for all rows of a chunk at once: the states
// before every step are known, so that no step has to wait for another.
#pragma once

#include "pass.h"

namespace OG_ISA {

template <class T> class Recompute : Pass<T> {
  using Base = Pass<T>;
  using Base::at_, Base::call_, Base::code_, Base::p_, Base::plan_, Base::rows_, Base::terms_;

 public:
  // rows: of a chunk. packed: as the forward pass has it.
  Recompute(const Plan& plan, const Packed<T>* packed, const Part& part, int thread, int64_t rows)
      : Base(plan, plan.program.forward, packed, part, thread) {
    rows_ = rows;
    this->block_ = std::max<int64_t>(1, std::min(rows_, kBlock / p_.widest));
  }

  void layout(Carver& carver) {
    this->layout_step(carver);
    this->layout_rows(carver, next_, p_.states, rows_);
    this->layout_rows(carver, keep_, p_.kept, rows_);
  }

  using Base::fill_step, Base::set_thread;

  // inputs, prev: (count, width) each.
  void run(const std::vector<T*>& inputs, const std::vector<T*>& prev, int64_t count,
           Barrier& barrier) {
    for (size_t i = 0; i < code_.slots.size(); ++i) {
      const Slot& slot = code_.slots[i];
      switch (slot.space) {
        case Space::kInput: at_[i] = inputs[slot.index]; break;
        case Space::kPrev: at_[i] = prev[slot.index]; break;
        case Space::kNext: at_[i] = next_[slot.index]; break;
        case Space::kKeep: at_[i] = keep_[slot.index]; break;
        default: break;
      }
    }
    for (const Stage& stage : code_.stages) {
      if (stage.terms.empty()) {
        this->pointwise(stage, count);
        continue;
      }
      if (plan_.columns) barrier.wait();
      this->multiply_all(stage, false, count);
      if (plan_.columns) barrier.wait();
    }
  }

  T* keep(int64_t number) const { return keep_[number]; }

 private:
  std::vector<T*> next_, keep_;
};

}  // namespace OG_ISA
