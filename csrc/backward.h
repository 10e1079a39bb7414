// The backward pass over a whole sequence: from the last step to the first, a chunk of steps at a
// time. Within a chunk the gradients at the maps' outputs stay in cache; at its end they are turned
// into the weights' gradients and the input's, as products over all rows of the chunk.
#pragma once

#include <algorithm>
#include <optional>

#include "recompute.h"

namespace OG_ISA {

constexpr int64_t kChunkRows = 192;       // rows of a chunk while the sums fit the cache
constexpr int64_t kLargeChunkRows = 512;  // and where they do not
constexpr int64_t kCachedSums = 256 * 1024;

// Sums for the weights of one head of a map: operands side by side, the bias as a column of ones.
struct MapLayout {
  const MapSums* map;
  int64_t head, height, width;
  std::vector<int64_t> columns;  // first column of each operand

  // Whether what it is multiplied by is the same.
  bool shares_operands(const MapLayout& other) const {
    if (head != other.head || width != other.width) return false;
    if ((map->bias < 0) != (other.map->bias < 0)) return false;
    return columns == other.columns &&
           std::equal(map->operands.begin(), map->operands.end(), other.map->operands.begin(),
                      other.map->operands.end(),
                      [](const Factor& a, const Factor& b) { return a.slot == b.slot; });
  }
};

inline std::vector<MapLayout> map_layouts(const og_program& p) {
  std::vector<MapLayout> layouts;
  for (const MapSums& map : p.maps) {
    const int64_t heads = p.parameters[map.operands[0].parameter].heads;
    for (int64_t head = 0; head < heads; ++head) {
      MapLayout layout{&map, head, p.backward.slots[map.output].width / heads, 0, {}};
      for (const Factor& operand : map.operands) {
        layout.columns.push_back(layout.width);
        layout.width += p.parameters[operand.parameter].columns;
      }
      layout.width += map.bias >= 0;
      // Maps of the same operands one after the other: these are then packed once.
      const auto same = std::find_if(layouts.rbegin(), layouts.rend(), [&](const MapLayout& other) {
        return layout.shares_operands(other);
      });
      layouts.insert(same == layouts.rend() ? layouts.end() : same.base(), std::move(layout));
    }
  }
  return layouts;
}

template <class T> class Backward : Pass<T> {
  using Base = Pass<T>;
  using Base::active, Base::at_, Base::call_, Base::code_, Base::p_, Base::part_, Base::plan_,
      Base::rows_, Base::sums_, Base::terms_, Base::time;

 public:
  Backward(const og_backward& call, const Plan& plan, const Packed<T>* packed,
           const Packed<T>* forward, const Part& part, int thread)
      : Base(plan, plan.program.backward, packed, part, thread), back_(call),
        maps_(map_layouts(p_)), chunk_(chunk_steps()),
        outside_maps_(p_.inputs.size(), false) {
    if (call_.recompute != 0) again_.emplace(plan, forward, part, thread, chunk_ * rows_);
    for (size_t i = 0; i < p_.inputs.size(); ++i)
      by_step_.push_back(!again_ && this->given(i).bytes != 0 && !is_operand(i));
    for (const Slot& slot : code_.slots) {
      widest_ = std::max(widest_, slot.width);
      if (slot.space == Space::kNext) needs_next_ = true;
      if (slot.space == Space::kGradInput) outside_maps_[slot.index] = true;
    }
    for (const Stage& stage : code_.stages)
      for (const Instruction& i : stage.run)
        if (sums_rows(i.op)) reduced_.push_back(i.dst);
  }

  void layout(Carver& carver) {
    const int64_t rows = chunk_ * rows_;
    this->layout_step(carver);
    if (again_) again_->layout(carver);
    inputs_.clear();
    grad_inputs_.clear();
    for (size_t i = 0; i < p_.inputs.size(); ++i) {
      const bool needed = grad_of(i) != nullptr || outside_maps_[i];
      inputs_.push_back(
          carver.take<T>(is_direct(i) ? 0 : (is_one_step(i) ? rows_ : rows) * p_.inputs[i]));
      grad_inputs_.push_back(carver.take<T>(needed ? rows * p_.inputs[i] : 0));
    }
    this->layout_rows(carver, prev_, p_.states, rows);
    this->layout_rows(carver, next_, p_.states, needs_next_ ? rows : 0);
    this->layout_rows(carver, carry_, p_.states, rows_);
    this->layout_rows(carver, carried_, p_.states, rows_);
    this->layout_rows(carver, chunks_, code_.chunks, rows);
    int64_t largest = 0, highest = 0;
    map_sums_.clear();
    for (const MapLayout& m : maps_) {
      if (!plan_.few)  // else the gradients are written at once
        map_sums_.push_back(carver.take<T>(panels<T>(m.width) * m.height * kPanel<T>));
      largest = std::max(largest, packed_size<T>(rows, m.width));
      highest = std::max(highest, m.height);
    }
    few_sums_ = carver.take<T>(plan_.few ? rows * panels<T>(widest_) * kPanel<T> : 0);
    operands_ = carver.take<T>(largest);
    gradients_ = carver.take<T>(rows * highest);
    for (int32_t parameter : reduced_)
      sums_[parameter] = carver.take<T>(p_.parameters[parameter].rows);
  }

  Backward for_thread(int thread) const {
    Backward other(*this);
    other.set_thread(thread);
    if (other.again_) other.again_->set_thread(thread);
    return other;
  }

  void run(Barrier& barrier, Turns& turns) {
    this->fill_step();
    if (again_) again_->fill_step();
    begin();
    for (int64_t s1 = call_.steps; s1 > 0; s1 -= chunk_) {
      if (turns.over()) return;
      const int64_t s0 = std::max<int64_t>(0, s1 - chunk_);
      offsets_.assign(1, 0);
      for (int64_t s = s0; s < s1; ++s) offsets_.push_back(offsets_.back() + active(time(s)));
      for (int64_t s = s0; s < s1; ++s) gather(time(s), offsets_[s - s0]);
      if (again_) again_->run(inputs_, prev_, offsets_.back(), barrier);
      for (int64_t s = s1 - 1; s >= s0; --s) {
        const int64_t t = time(s), count = active(t);
        look_ahead(s - 1, count);
        step(t, count, offsets_[s - s0], barrier);
        finish(t, count);
      }
      if (plan_.columns) barrier.wait();
      if (plan_.few)
        write_weights(barrier);
      else
        add_weights(s0, s1, barrier);
      for (size_t i = 0; i < p_.inputs.size(); ++i)
        if (grad_of(i) != nullptr) write_input_gradient(i, s0, s1);
      if (plan_.columns) barrier.wait();
    }
  }

  int direction() const { return part_.direction; }
  const T* map_sums(size_t map) const { return map_sums_[map]; }
  const T* vector_sums(int64_t parameter) const { return sums_[parameter]; }

 private:
  // Steps of a chunk.
  int64_t chunk_steps() const {
    int64_t bytes = 0;
    for (const MapLayout& map : maps_)
      bytes += map.height * map.width * static_cast<int64_t>(sizeof(T));
    const int64_t rows = bytes > kCachedSums ? kLargeChunkRows : kChunkRows;
    const int64_t chunks = std::max<int64_t>(1, call_.steps * rows_ / rows);
    return (call_.steps + chunks - 1) / chunks;
  }

  void* grad_of(size_t input) const {
    if (input == 0) return back_.grad_x;
    return back_.grad_extras == nullptr ? nullptr : back_.grad_extras[input - 1];
  }
  // To compute steps anew all rows of the chunk are needed.
  bool is_fixed(size_t input) const { return !again_ && Base::is_fixed(input); }
  bool is_direct(size_t input) const { return !again_ && Base::is_direct(input); }
  // Whether the rows of a single step are gathered: all steps have the same, or each its own, anew.
  bool is_one_step(size_t input) const { return is_fixed(input) || by_step_[input]; }
  // Whether weight gradients are computed from an input, and so from all steps of a chunk.
  bool is_operand(size_t input) const {
    for (const MapSums& map : p_.maps)
      for (const Factor& operand : map.operands) {
        const Slot& slot = code_.slots[operand.slot];
        if (slot.space == Space::kInput && slot.index == static_cast<int32_t>(input)) return true;
      }
    return false;
  }
  // An input's rows at step t, which begin at `offset` of the chunk.
  T* input_at(size_t input, int64_t t, int64_t offset) const {
    if (is_direct(input)) return this->own_rows(input, t);
    return inputs_[input] + (is_one_step(input) ? 0 : offset * p_.inputs[input]);
  }

  // The vectors' sums start at zero; the gradient that is carried, at the last states' in both buffers: a row
  // that ends earlier finds it in either.
  void begin() {
    for (int32_t parameter : reduced_) {
      const Columns c = this->share(p_.parameters[parameter].rows);
      std::fill(sums_[parameter] + c.first, sums_[parameter] + c.last, T{0});
    }
    for (size_t i = 1; i < p_.inputs.size(); ++i)
      if (!is_direct(i) && is_fixed(i)) this->gather_input(i, inputs_[i], 0, rows_);
    const Numbers<T> last(back_.grad_last, call_.last_stored);
    for (size_t i = 0; i < p_.states.size(); ++i) {
      const int64_t width = p_.states[i];
      const Columns c = this->share(width);
      for (auto* buffer : {&carry_, &carried_})
        for (int64_t r = 0; r < rows_; ++r) {
          T* to = (*buffer)[i] + r * width + c.first;
          if (last.data == nullptr)
            std::fill(to, to + (c.last - c.first), T{0});
          else
            copy_row(to, last + this->state_row(r) + p_.state_offsets[i] + c.first,
                     c.last - c.first);
        }
    }
  }

  // Input, states before and (where needed) after step t, to row `offset` of the chunk's arrays.
  void gather(int64_t t, int64_t offset) {
    const int64_t count = active(t);
    for (size_t i = 0; i < p_.inputs.size(); ++i)
      if (!is_direct(i) && !is_one_step(i))
        this->gather_input(i, inputs_[i] + offset * p_.inputs[i], t, count);
    const int64_t before = this->reverse_ ? t + 1 : t - 1;
    const Numbers<T> start = this->start();
    // Backward in time a row starts at its end, so that the rows that run at t but not at t + 1
    // start here; forward in time all start at 0.
    const int64_t going_on =
        this->reverse_ ? (t + 1 < call_.steps ? active(t + 1) : 0) : (t > 0 ? count : 0);
    for (size_t i = 0; i < p_.states.size(); ++i) {
      T* to = prev_[i] + offset * p_.states[i];
      this->copy_rows(count, p_.states[i], [&](int64_t r) { return to + r * p_.states[i]; },
                      [&](int64_t r) -> Numbers<T> {
                        if (this->starts_anew(t, r)) return this->initial(i);
                        return r < going_on
                                   ? state_at(i, before, r)
                                   : start + this->state_row(r) + p_.state_offsets[i];
                      });
      if (!needs_next_) continue;
      T* next = next_[i] + offset * p_.states[i];
      this->copy_rows(count, p_.states[i], [&](int64_t r) { return next + r * p_.states[i]; },
                      [&](int64_t r) { return state_at(i, t, r); });
    }
  }

  // State i after step t as the forward pass left it: the output, or what was kept.
  const T* state_at(size_t i, int64_t t, int64_t r) const {
    if (!this->is_kept(i))
      return static_cast<const T*>(call_.out) + p_.state_offsets[i] +
             this->out_row(t, r, call_.out_step, call_.out_row);
    return this->kept_state(static_cast<int64_t>(i), t) + r * p_.states[i];
  }

  void step(int64_t t, int64_t count, int64_t offset, Barrier& barrier) {
    add_output_gradient(t, count);
    for (size_t i = 0; i < p_.inputs.size(); ++i)
      if (by_step_[i] && !is_fixed(i)) this->gather_input(i, inputs_[i], t, count);
    for (size_t i = 0; i < code_.slots.size(); ++i) {
      const Slot& slot = code_.slots[i];
      switch (slot.space) {
        case Space::kInput: at_[i] = input_at(slot.index, t, offset); break;
        case Space::kPrev: at_[i] = prev_[slot.index] + offset * slot.width; break;
        case Space::kNext: at_[i] = next_[slot.index] + offset * slot.width; break;
        case Space::kKeep: at_[i] = keep(slot, t, offset); break;
        case Space::kChunk: at_[i] = chunks_[slot.index] + offset * slot.width; break;
        case Space::kGradNext: at_[i] = carry_[slot.index]; break;
        case Space::kGradPrev: at_[i] = carried_[slot.index]; break;
        case Space::kGradInput: at_[i] = grad_inputs_[slot.index] + offset * slot.width; break;
        default: break;
      }
    }
    for (const Stage& stage : code_.stages) {
      if (stage.terms.empty()) {
        this->pointwise(stage, count);
        continue;
      }
      if (plan_.columns) barrier.wait();
      multiply_stage(stage, count);
      if (plan_.columns) barrier.wait();
    }
  }

  // Asks for what was kept of the step that comes next, while this one's `count` rows are worked on.
  void look_ahead(int64_t s, int64_t count) {
    this->look_ahead_at(again_ || s < 0 ? -1 : time(s), count, false);
  }

  // A kept value at step t, whose rows begin at `offset` of the chunk.
  T* keep(const Slot& slot, int64_t t, int64_t offset) const {
    return again_ ? again_->keep(slot.index) + offset * slot.width
                  : this->kept(slot.index, slot.width, t);
  }

  void multiply_stage(const Stage& stage, int64_t count) {
    if (!plan_.few) return this->multiply_all(stage, true, count);
    T* to = at_[stage.dst];
    const int64_t width = code_.slots[stage.dst].width;
    const T* init = stage.init < 0 ? nullptr : at_[stage.init];
    const int64_t init_stride = stage.init < 0 ? 0 : this->stride(stage.init);
    this->begin_sum(to, width, init, init_stride, count);
    const Columns c = this->share(width);
    for (const Factor& factor : stage.terms)
      this->matrix(factor.parameter).visit([&](const auto* matrix) {
        add_product<T>(to, width, at_[factor.slot], this->stride(factor.slot), matrix,
                       code_.slots[factor.slot].width, count, c.first, c.last, few_sums_);
      });
  }

  void add_output_gradient(int64_t t, int64_t count) {
    if (back_.grad_out == nullptr) return;
    for (size_t i = 0; i < this->outputs(); ++i) {
      const int64_t n = p_.states[i];
      const Columns c = this->share(n);
      const Numbers<T> from = Numbers<T>(back_.grad_out, call_.out_stored) + p_.state_offsets[i];
      for (int64_t r = 0; r < count; ++r)
        add_row(carry_[i] + r * n + c.first,
                from + this->out_row(t, r, back_.grad_out_step, back_.grad_out_row) + c.first,
                c.last - c.first);
    }
  }

  // What rows that started anew before step t give the initial states, and not the step before.
  void cut(int64_t t, int64_t count) {
    if (call_.reset == nullptr) return;
    T* grad = static_cast<T*>(back_.grad_initial);
    for (int64_t r = 0; r < count; ++r)
      for (size_t i = 0; this->starts_anew(t, r) && i < p_.states.size(); ++i) {
        const Columns c = this->share(p_.states[i]);
        T* carried = carried_[i] + r * p_.states[i];
        T* to = grad + this->row(r) * p_.state_sum + p_.state_offsets[i];
        each(to + c.first, to + c.first, carried + c.first, c.last - c.first,
             [](Vec<T> x, Vec<T> y) { return x + y; });
        std::fill(carried + c.first, carried + c.last, T{0});
      }
  }

  // Hands out the gradients of the states that rows started with, and moves on.
  void finish(int64_t t, int64_t count) {
    cut(t, count);
    const int64_t going_on =
        this->reverse_ ? (t + 1 < call_.steps ? active(t + 1) : 0) : (t > 0 ? count : 0);
    const Numbers<T> start(back_.grad_start, call_.start_stored);
    for (size_t i = 0; i < p_.states.size(); ++i) {
      const Columns c = this->share(p_.states[i]);
      for (int64_t r = going_on; r < count; ++r)
        copy_row<T>(start + this->state_row(r) + p_.state_offsets[i] + c.first,
                    carried_[i] + r * p_.states[i] + c.first, c.last - c.first);
    }
    std::swap(carry_, carried_);
  }

  // Rows of a lasting slot for step s0 + j of the chunk.
  const T* lasting(int32_t slot_number, int64_t s0, int64_t j) const {
    const Slot& slot = code_.slots[slot_number];
    switch (slot.space) {
      case Space::kInput: return input_at(slot.index, time(s0 + j), offsets_[j]);
      case Space::kPrev: return prev_[slot.index] + offsets_[j] * slot.width;
      case Space::kNext: return next_[slot.index] + offsets_[j] * slot.width;
      case Space::kKeep: return keep(slot, time(s0 + j), offsets_[j]);
      default: return chunks_[slot.index] + offsets_[j] * slot.width;
    }
  }

  // Operands of a map side by side, packed by panels; the bias's column of ones last.
  void pack_operands(size_t m, int64_t s0, int64_t s1) {
    constexpr int64_t P = kPanel<T>;
    const MapLayout& layout = maps_[m];
    const MapSums& map = *layout.map;
    const int64_t k = offsets_.back();
    for (size_t o = 0; o < map.operands.size(); ++o) {
      const int64_t stride = code_.slots[map.operands[o].slot].width;
      const int64_t width = p_.parameters[map.operands[o].parameter].columns;
      const int64_t first = layout.columns[o];
      for (int64_t j = 0; j < s1 - s0; ++j) {
        const T* rows = lasting(map.operands[o].slot, s0, j) + layout.head * width;
        for (int64_t row = offsets_[j]; row < offsets_[j + 1]; ++row, rows += stride)
          for (int64_t c = 0; c < width;) {
            const int64_t column = first + c;
            const int64_t run = std::min(width - c, P - column % P);
            T* to = operands_ + (column / P * k + row) * P + column % P;
            if (run == P)
              for (int64_t v = 0; v < P; v += kLanes<T>) store(to + v, load(rows + c + v));
            else
              for (int64_t v = 0; v < run; ++v) to[v] = rows[c + v];
            c += run;
          }
      }
    }
    const int64_t used = layout.width - (map.bias >= 0);
    for (int64_t column = used; column < panels<T>(layout.width) * P; ++column) {
      const T value = column == used && map.bias >= 0 ? T{1} : T{0};
      for (int64_t row = 0; row < k; ++row)
        operands_[(column / P * k + row) * P + column % P] = value;
    }
  }

  void add_weights(int64_t s0, int64_t s1, Barrier& barrier) {
    for (size_t m = 0; m < maps_.size(); ++m) {
      const bool packed = m > 0 && maps_[m].shares_operands(maps_[m - 1]);
      if (!packed && (!plan_.columns || this->thread_ == 0)) pack_operands(m, s0, s1);
      if (!packed && plan_.columns) barrier.wait();
      const Slot& output = code_.slots[maps_[m].map->output];
      const Columns c = this->share(maps_[m].height);
      outer_product(map_sums_[m], maps_[m].height,
                    chunks_[output.index] + maps_[m].head * maps_[m].height, output.width,
                    gradients_, operands_, offsets_.back(), maps_[m].width, c.first, c.last,
                    s1 == call_.steps);
      if (plan_.columns) barrier.wait();
    }
  }

  // The gradients of the maps' weights where all steps are one chunk: this thread's rows of each,
  // tile by tile to where they belong.
  void write_weights(Barrier& barrier) {
    constexpr int64_t P = kPanel<T>;
    struct Piece {
      Numbers<T> grad;
      int64_t first, width;
    };
    const int64_t k = offsets_.back();
    const auto grad = [&](int64_t number) {
      return this->parameter(back_.grad_parameters, number);
    };
    T left[kTileRows * kFewRows], sums[kTileRows * P];
    for (size_t m = 0; m < maps_.size(); ++m) {
      const MapLayout& layout = maps_[m];  // of one head: others are not few
      const MapSums& map = *layout.map;
      std::vector<Piece> pieces;
      for (size_t o = 0; o < map.operands.size(); ++o)
        pieces.push_back({grad(map.operands[o].parameter), layout.columns[o],
                          p_.parameters[map.operands[o].parameter].columns});
      if (map.bias >= 0) pieces.push_back({grad(map.bias), layout.width - 1, 1});
      const bool packed = m > 0 && layout.shares_operands(maps_[m - 1]);
      if (!packed && (!plan_.columns || this->thread_ == 0)) pack_operands(m, 0, call_.steps);
      if (!packed && plan_.columns) barrier.wait();
      const T* gradient = chunks_[code_.slots[map.output].index];
      const Columns c = this->share(layout.height);
      row_blocks(c.last - c.first, [&](int64_t offset, int64_t block) {
        const int64_t row = c.first + offset;
        for (int64_t j = 0; j < k; ++j)
          for (int64_t i = 0; i < block; ++i)
            left[j * block + i] = gradient[j * layout.height + row + i];
        for (int64_t p = 0; p < panels<T>(layout.width); ++p) {
          outer_tile_of<T, 2>(block, sums, left, block, operands_ + p * k * P, k, true);
          for (const Piece& piece : pieces) {
            const int64_t first = std::max(piece.first, p * P);
            const int64_t width = std::min(piece.first + piece.width, p * P + P) - first;
            for (int64_t i = 0; i < block && width > 0; ++i)
              copy_row<T>(piece.grad + ((row + i) * piece.width + first - piece.first),
                          sums + i * P + first - p * P, width);
          }
        }
      });
      if (plan_.columns) barrier.wait();
    }
  }

  // Through the maps, added to what came outside them.
  void write_input_gradient(size_t input, int64_t s0, int64_t s1) {
    const int64_t d = p_.inputs[input], rows = offsets_.back();
    const Columns c = this->share(d);
    T* sum = grad_inputs_[input];
    const T* init = outside_maps_[input] ? sum : nullptr;
    if (plan_.few) this->begin_sum(sum, d, init, d, rows);
    terms_.clear();
    const auto each_map = [&](auto body) {
      for (const MapSums& map : p_.maps)
        for (const Factor& operand : map.operands) {
          const Slot& slot = code_.slots[operand.slot];
          if (slot.space != Space::kInput || slot.index != static_cast<int32_t>(input)) continue;
          body(operand, chunks_[code_.slots[map.output].index], code_.slots[map.output].width);
        }
    };
    each_map([&](const Factor& operand, const T* gradient, int64_t k) {
      if (plan_.few)
        this->matrix(operand.parameter).visit([&](const auto* matrix) {
          add_product<T>(sum, d, gradient, k, matrix, k, rows, c.first, c.last, few_sums_);
        });
      else if (!this->has_heads(operand))
        terms_.push_back({gradient, k, k, this->packed_->get(part_.direction, operand.parameter)});
    });
    if (!plan_.few) this->multiply(sum, d, init, d, rows);
    each_map([&](const Factor& operand, const T* gradient, int64_t k) {
      if (this->has_heads(operand))
        this->add_heads(sum, d, operand.parameter, gradient, k, true, rows);
    });
    const Numbers<T> grad =
        Numbers<T>(grad_of(input), input == 0 ? back_.grad_x_stored : OG_AS_COMPUTED) +
        part_.direction * call_.steps * call_.rows * d;
    for (int64_t s = s0; s < s1; ++s) {
      const int64_t t = time(s), count = offsets_[s - s0 + 1] - offsets_[s - s0];
      for (int64_t r = 0; r < rows_; ++r) {
        const Numbers<T> to = grad + ((t * call_.rows + this->row(r)) * d + c.first);
        if (r < count)
          copy_row<T>(to, sum + (offsets_[s - s0] + r) * d + c.first, c.last - c.first);
        else
          clear_row(to, c.last - c.first);
      }
    }
  }

  const og_backward& back_;
  std::vector<MapLayout> maps_;
  int64_t chunk_ = 1, widest_ = 1;
  std::optional<Recompute<T>> again_;
  bool needs_next_ = false;
  std::vector<bool> outside_maps_;  // by input: whether its gradient has a part outside of the maps
  std::vector<int32_t> reduced_;
  std::vector<int64_t> offsets_;  // first row of each step in the chunk's arrays
  T *operands_ = nullptr, *gradients_ = nullptr, *few_sums_ = nullptr;
  std::vector<char> by_step_;  // of the inputs: masks, which are widened in cache
  std::vector<T*> inputs_, grad_inputs_, prev_, next_, carry_, carried_, chunks_, map_sums_;
};

// Adds up the parts' sums and writes the parameters' gradients: this thread's share of each.
template <class T>
void write_gradients(const og_backward& call, const Plan& plan,
                     const std::vector<std::vector<Backward<T>>>& all, int thread) {
  const og_program& p = plan.program;
  const int64_t count = static_cast<int64_t>(p.parameters.size());
  const auto grad = [&](int d, int64_t parameter) {
    return Numbers<T>(call.grad_parameters[d * count + parameter], plan.call.parameters_stored);
  };
  for (int d = 0; d < plan.call.directions; ++d) {
    std::vector<const Backward<T>*> parts;
    for (size_t t = 0; t < (plan.columns ? 1 : all.size()); ++t)
      for (const Backward<T>& part : all[t])
        if (part.direction() == d) parts.push_back(&part);
    const auto first = [&](int64_t rows) { return rows * thread / plan.threads; };
    const auto last = [&](int64_t rows) { return rows * (thread + 1) / plan.threads; };
    std::vector<bool> written(count, false);
    const std::vector<MapLayout> layouts = map_layouts(p);
    for (size_t m = 0; m < layouts.size(); ++m) {
      const MapLayout& layout = layouts[m];
      const MapSums& map = *layout.map;
      for (const Factor& operand : map.operands) written[operand.parameter] = true;
      if (map.bias >= 0) written[map.bias] = true;
      if (plan.few) continue;
      // Columns [column, column + width) of one row, summed over the parts.
      const auto total = [&](Numbers<T> to, int64_t row, int64_t column, int64_t width) {
        T rounded[kPanel<T>];
        for (int64_t c = 0; c < width;) {
          const int64_t offset = (column + c) % kPanel<T>;
          const int64_t run = std::min(width - c, kPanel<T> - offset);
          const int64_t at =
              ((column + c) / kPanel<T> * layout.height + row) * kPanel<T> + offset;
          T* const sum = to.as_computed() ? to.own() + c : rounded;
          copy_row<T>(sum, parts[0]->map_sums(m) + at, run);
          for (size_t part = 1; part < parts.size(); ++part)
            each(sum, sum, parts[part]->map_sums(m) + at, run,
                 [](Vec<T> x, Vec<T> y) { return x + y; });
          if (sum == rounded) copy_row<T>(to + c, rounded, run);
          c += run;
        }
      };
      for (int64_t row = first(layout.height); row < last(layout.height); ++row) {
        for (size_t o = 0; o < map.operands.size(); ++o) {
          const int64_t parameter = map.operands[o].parameter;
          const int64_t width = p.parameters[parameter].columns;
          total(grad(d, parameter) + (layout.head * layout.height + row) * width, row,
                layout.columns[o], width);
        }
        if (map.bias >= 0)
          total(grad(d, map.bias) + layout.head * layout.height + row, row, layout.width - 1, 1);
      }
    }
    for (int64_t i = 0; i < count; ++i) {
      if (written[i]) continue;
      const int64_t size = p.parameters[i].count();
      for (int64_t e = first(size); e < last(size);) {
        T sums[kPanel<T>] = {};
        const int64_t run = std::min<int64_t>(kPanel<T>, last(size) - e);
        for (const Backward<T>* part : parts)
          for (int64_t c = 0; part->vector_sums(i) != nullptr && c < run; ++c)
            sums[c] += part->vector_sums(i)[e + c];
        copy_row<T>(grad(d, i) + e, sums, run);
        e += run;
      }
    }
  }
}

template <class T> bool run_backward(const og_backward& call, Watch& watch) {
  const Plan plan(call.forward, kFewRows);
  const og_program& p = plan.program;
  std::vector<bool> needed(p.parameters.size(), false);
  for (const Stage& stage : p.backward.stages)
    for (const Factor& term : stage.terms) needed[term.parameter] = !plan.few;
  const auto is_wanted = [&](const Slot& slot) {  // an input whose gradient goes through a map
    if (slot.space != Space::kInput) return false;
    if (slot.index == 0) return call.grad_x != nullptr;
    return call.grad_extras != nullptr && call.grad_extras[slot.index - 1] != nullptr;
  };
  if (!plan.few)
    for (const MapSums& map : p.maps)
      for (const Factor& operand : map.operands)
        if (is_wanted(p.backward.slots[operand.slot])) needed[operand.parameter] = true;
  std::vector<bool> again(p.parameters.size(), false);
  for (const Stage& stage : p.forward.stages)
    for (const Factor& term : stage.terms) again[term.parameter] = plan.call.recompute != 0;
  Packed<T> packed, forward;
  OwnScratch scratch;
  auto all = workers<Backward<T>>(
      plan, scratch,
      [&](const Part& part, int thread) {
        return Backward<T>(call, plan, &packed, &forward, part, thread);
      },
      [&](Carver& carver) {
        packed.layout(carver, p, plan.call.directions, needed, true);
        forward.layout(carver, p, plan.call.directions, again, false);
      });
  return on_threads(plan.threads, [&](int thread, Barrier& barrier) {
    packed.fill(plan.call, needed, true, thread, plan.threads);
    forward.fill(plan.call, again, false, thread, plan.threads);
    barrier.wait();
    Turns turns(watch, thread, 1);
    for (Backward<T>& part : all[thread]) part.run(barrier, turns);
    barrier.wait();
    if (!watch.ended()) write_gradients(call, plan, all, thread);
  });
}

}  // namespace OG_ISA
