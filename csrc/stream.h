// One step at a time: matrices are packed and scratch is laid out once, and the states lie where the
// host sees them.
#pragma once

#include "forward.h"

namespace OG_ISA {

template <class T> class Stream final : public og_stream {
 public:
  explicit Stream(const og_forward& call)
      : call_(call), plan_(packing(call_)), needed_(plan_.program.parameters.size(), false),
        part_(plan_, &packed_, Part{0, 0, call.rows}, 0) {
    for (const Stage& stage : plan_.program.forward.stages)
      for (const Factor& term : stage.terms) needed_[term.parameter] = true;
    carve(scratch_, [&](Carver& carver) {
      packed_.layout(carver, plan_.program, 1, needed_, false);
      part_.layout(carver);
    });
    packed_.fill(call_, needed_, false, 0, 1);
    part_.fill_step();
  }

  void step() override {
    Watch nobody(nullptr);
    Turns turns(nobody, 0, 1);
    Barrier alone(1);
    part_.go(alone, turns);
  }

 private:
  // Packed once, matrices serve all steps.
  static Plan packing(const og_forward& call) {
    Plan plan(call, 0);
    plan.few = false;
    return plan;
  }

  const og_forward call_;
  const Plan plan_;
  Packed<T> packed_;
  Scratch scratch_;
  std::vector<bool> needed_;
  Forward<T> part_;
};

template <class T> og_stream* new_stream(const og_forward& call) { return new Stream<T>(call); }

}  // namespace OG_ISA
