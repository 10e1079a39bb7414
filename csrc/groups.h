// Which pointwise instructions of a run are done in one pass over their rows: those of norms, whose
// values then go from one to the next in registers. A program knows nothing of it.
#pragma once

#include <algorithm>
#include <map>

#include "program.h"

class Grouping {
  using Kind = Group::Kind;

 public:
  Grouping(Code& code, const std::vector<Instruction>& run) : code_(code) {
    // Every value of brief scratch has a slot of its own while groups are made, so that the order may
    // change.
    std::map<int32_t, int32_t> now;  // by number of the scratch
    for (Instruction i : run) {
      whole_rows_ = whole_rows_ || narrow(i.op) != 0;
      for (int32_t& arg : i.args)
        if (arg >= 0 && is_brief(arg)) arg = now.at(code_.slots[arg].index);
      if (!sums_rows(i.op) && is_brief(i.dst)) {
        const Slot slot = code_.slots[i.dst];
        i.dst = now[slot.index] = static_cast<int32_t>(code_.slots.size());
        code_.slots.push_back({Space::kTemp, kOwn + i.dst, slot.width});
      }
      groups_.push_back({Kind::one, 1, {i}, {true}});
    }
  }

  std::vector<Group> made() {
    for (size_t at = 0; at < groups_.size();) {
      const Instruction first = groups_[at].parts[0];
      size_t place = at;
      switch (groups_[at].kind == Kind::one ? first.op : Op::copy) {
        case Op::mean:
          extend(place, Kind::moments, [&](const Instruction& i) {
            return i.op == Op::variance && i.args[0] == first.args[0] && i.args[1] == first.dst;
          });
          break;
        case Op::sqrt:
          if (whole_rows_ && is_number(first.dst)) root(place);
          break;
        case Op::normed: case Op::scaled:
          if (!extend(place, Kind::apart, [&](const Instruction& i) {
                return i.op == Op::minus_scaled && i.args[0] == first.dst && i.args[1] != first.dst;
              }))
            affine(place);
          break;
        case Op::mul:
          gained(place);
          break;
        case Op::reduce_product:
          extend(place, Kind::sums, [&](const Instruction& i) {
            return i.op == Op::reduce && i.args[0] == first.args[0] && i.dst != first.dst;
          });
          break;
        default: break;
      }
      if (place == at) ++at;  // else another group is there now
    }
    for (size_t at = 0; at < groups_.size(); ++at)
      for (int part = 0; part < groups_[at].count; ++part)
        groups_[at].stored[part] = is_wanted(at, part);
    place();
    return std::move(groups_);
  }

 private:
  static constexpr int32_t kOwn = 1 << 30;

  bool is_brief(int32_t slot) const {
    const Slot& s = code_.slots[slot];
    return s.space == Space::kTemp && (s.index >= kOwn || code_.brief[s.index]);
  }

  // Gives the values' slots places: one that nobody reads any more has room for the next.
  void place() {
    std::map<int32_t, size_t> last;  // by slot: the group that reads it last
    for (size_t at = 0; at < groups_.size(); ++at)
      for (int part = 0; part < groups_[at].count; ++part) {
        const Instruction& i = groups_[at].parts[part];
        for (int32_t arg : i.args)
          if (arg >= 0 && is_brief(arg)) last[arg] = at;
        if (!sums_rows(i.op) && is_brief(i.dst)) last.insert({i.dst, at});
      }
    std::multimap<int64_t, int32_t> idle;  // by width
    for (const auto& [number, width] : code_.own) idle.insert({width, number});
    for (size_t at = 0; at < groups_.size(); ++at) {
      const Group& group = groups_[at];
      std::vector<int32_t> over;
      for (const auto& [slot, end] : last)
        if (end == at) over.push_back(slot);
      const auto rest = [&](int32_t slot) {
        const Slot& s = code_.slots[slot];
        if (s.index < kOwn) idle.insert({s.width, s.index});
      };
      // A single operation reads an element before it writes it.
      const bool early = group.kind == Kind::one && !sums_rows(group.parts[0].op);
      for (int32_t slot : over)
        if (early && slot != group.parts[0].dst) rest(slot);
      for (int part = 0; part < group.count; ++part) {
        if (sums_rows(group.parts[part].op) || !group.stored[part]) continue;
        Slot& slot = code_.slots[group.parts[part].dst];
        if (slot.space != Space::kTemp || slot.index < kOwn) continue;
        const auto found = idle.find(slot.width);
        if (found != idle.end()) {
          slot.index = found->second;
          idle.erase(found);
        } else {
          slot.index = static_cast<int32_t>(code_.temps.size());
          code_.temps.push_back(slot.width);
          code_.brief.push_back(true);
          code_.own.push_back({slot.index, slot.width});
        }
      }
      for (int32_t slot : over)
        if (!early || slot == group.parts[0].dst) rest(slot);
    }
    for (Slot& slot : code_.slots)  // of what stays in registers
      if (slot.space == Space::kTemp && slot.index >= kOwn) slot.index = -1;
  }

  bool is_number(int32_t slot) const { return code_.slots[slot].width == 1; }

  bool same(int32_t a, int32_t b) const {
    return a == b || (a >= 0 && b >= 0 && code_.slots[a].space == code_.slots[b].space &&
                      code_.slots[a].index == code_.slots[b].index);
  }
  bool reads(const Instruction& i, int32_t slot) const {
    return std::any_of(i.args, i.args + 3, [&](int32_t arg) { return arg >= 0 && same(arg, slot); });
  }
  bool writes(const Instruction& i, int32_t slot) const {
    return !sums_rows(i.op) && same(i.dst, slot);
  }
  // Whether the one may not change places with the other.
  bool depends(const Instruction& a, const Instruction& b) const {
    if (!sums_rows(a.op) && (reads(b, a.dst) || writes(b, a.dst))) return true;
    return !sums_rows(b.op) && reads(a, b.dst);
  }
  bool depends(const Group& a, const Group& b) const {
    for (int i = 0; i < a.count; ++i)
      for (int j = 0; j < b.count; ++j)
        if (depends(a.parts[i], b.parts[j])) return true;
    return false;
  }

  // Makes the single instruction at `other` the group's next part, at the one's place or at the
  // other's.
  bool join(size_t& at, size_t other, Kind kind) {
    const auto free = [&](size_t one) {
      for (size_t between = at + 1; between < other; ++between)
        if (depends(groups_[one], groups_[between])) return false;
      return true;
    };
    const bool up = free(other);
    if (!up && !free(at)) return false;
    Group group = groups_[at];
    group.kind = kind;
    group.parts[group.count++] = groups_[other].parts[0];
    groups_[up ? at : other] = group;
    groups_.erase(groups_.begin() + static_cast<std::ptrdiff_t>(up ? other : at));
    if (!up) at = other - 1;
    return true;
  }

  // Joins the first single instruction that is meant, as long as what the group has written stands.
  template <class Meant> bool extend(size_t& at, Kind kind, Meant meant) {
    const Group group = groups_[at];
    for (size_t other = at + 1; other < groups_.size(); ++other) {
      if (groups_[other].kind == Kind::one && meant(groups_[other].parts[0])) {
        size_t place = at;
        if (!join(place, other, kind)) return false;
        if (place != at) at = place;
        return true;
      }
      for (int part = 0; part < group.count; ++part)
        for (int own = 0; own < groups_[other].count; ++own)
          if (!sums_rows(group.parts[part].op) &&
              writes(groups_[other].parts[own], group.parts[part].dst))
            return false;
    }
    return false;
  }

  // 1 / sqrt(variance + eps), of numbers alone: what comes before the root, and the quotient.
  void root(size_t& at) {
    const Instruction first = groups_[at].parts[0];
    if (at == 0 || groups_[at - 1].kind != Kind::one) return;
    const Instruction before = groups_[at - 1].parts[0];
    if ((before.op != Op::add && before.op != Op::muladd) || before.dst != first.args[0] ||
        at + 1 >= groups_.size() || groups_[at + 1].kind != Kind::one)
      return;
    const Instruction after = groups_[at + 1].parts[0];
    if (after.op != Op::div || after.args[1] != first.dst || after.args[0] == first.dst) return;
    if (before.args[1] == first.args[0] && before.args[0] == first.args[0]) return;
    groups_[at - 1] = {Kind::root, 3, {before, first, after}, {}};
    groups_.erase(groups_.begin() + static_cast<std::ptrdiff_t>(at),
                  groups_.begin() + static_cast<std::ptrdiff_t>(at) + 2);
    at -= 1;
  }

  // Gain and shift of what was normed.
  void affine(size_t& at) {
    const Instruction first = groups_[at].parts[0];
    extend(at, Kind::affine, [&](const Instruction& i) {
      const bool one = i.args[0] == first.dst, other = i.args[1] == first.dst;
      return i.op == Op::muladd && one != other && i.args[2] != first.dst;
    });
  }

  // A gradient times the gain, its mean and the mean of its product with what was normed.
  void gained(size_t& at) {
    const Instruction first = groups_[at].parts[0];
    if (is_number(first.dst)) return;
    const std::vector<Group> all = groups_;
    const size_t place = at;
    if (extend(at, Kind::gained, [&](const Instruction& i) {
          return i.op == Op::mean && i.args[0] == first.dst;
        }) &&
        extend(at, Kind::gained, [&](const Instruction& i) {
          return i.op == Op::mean_product && i.args[0] == first.dst && i.args[1] != first.dst;
        }))
      return;
    groups_ = all;
    at = place;
  }

  // Whether anybody but the group itself, in registers, reads what a part writes.
  bool is_wanted(size_t at, int part) const {
    const Group& group = groups_[at];
    const Instruction& writer = group.parts[part];
    if (sums_rows(writer.op) || part == group.count - 1 || !is_brief(writer.dst)) return true;
    if (group.kind == Kind::moments || group.kind == Kind::gained) return true;
    for (size_t other = at + 1; other < groups_.size(); ++other)
      for (int i = 0; i < groups_[other].count; ++i)
        if (reads(groups_[other].parts[i], writer.dst)) return true;
    return false;
  }

  Code& code_;
  std::vector<Group> groups_;
  bool whole_rows_ = false;
};

// Sets the groups of all runs.
inline void make_groups(Code& code) {
  const size_t before = code.temps.size();
  for (Stage& stage : code.stages) stage.groups = Grouping(code, stage.run).made();
  for (size_t temp = 0; temp < before; ++temp)
    if (code.brief[temp]) code.temps[temp] = 0;  // groups have their own
}
