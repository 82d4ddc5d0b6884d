// The engine's core: the table of requests, what becomes a step plan, and what becomes of its result.
//
// It is driven: requests, cancels and step results go in, plans and output events come out, time is passed
// in. Threads are someone else's (engine.cc); tests drive it with a rank of their own.
//
// Thread-safety: none; it belongs to the engine thread.
// Ownership: owns requests, sequences, page pools (tables, not bytes), prefix tree, detokenisers.
// Invariants: docs/execution.md, sections 2 to 4. In particular:
//   1. At most options.plans_in_flight plans for any coordinate are unanswered.
//   2. Each request's last event is sent exactly once.
//   3. compose() gives a plan whenever nothing is in flight and anything waits: the engine never stands
//      still, unless what waits needs pages of sequences that are away, or another worker to call; each of
//      these ends by a deadline.

#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "core/clock.h"
#include "core/expected.h"
#include "engine/engine.h"
#include "engine/request.h"
#include "engine/sequence.h"
#include "engine/stats.h"
#include "kv/kv_cache.h"
#include "kv/offload_table.h"
#include "layout/step_plan.h"
#include "policy/admission.h"
#include "policy/batch.h"
#include "policy/cost_model.h"
#include "policy/retraction.h"
#include "tokenizer/tokenizer.h"

namespace shoal::engine {

// Most of the best ids whose log-probabilities may be asked for.
inline constexpr std::int32_t kMaxLogprobs = 128;
inline constexpr std::int32_t kMaxChoices = 128;
// A request ends with the third rank lost while it ran: it may be the reason.
inline constexpr std::int32_t kMostLosses = 3;

struct SchedulerOptions {
  std::vector<KvGroup> kv_groups;
  std::vector<std::int32_t> kv_pages;  // by group, on each coordinate
  std::int64_t vocabulary = 0;
  std::uint64_t parameters = 0;  // for the cost model's first guess
  std::string fingerprint;
  std::int32_t context = 0;  // the limit in force; pools hold at least that much
  std::int32_t max_sequences = 64;
  policy::BatchLimits batch;
  std::int32_t plans_in_flight = 2;  // for each coordinate: Layout::plans_in_flight()
  // Pipeline stages: each works on a plan of its own.
  std::int32_t stages = 1;
  // Coordinates that sequences' pages lie with, and how prompts are dealt to them.
  std::int32_t coordinates = 1;
  ContextPartition partition = ContextPartition::kZigzag;
  std::int32_t cp_force = 0;
  // Of one layer, to judge what is to travel; query and result: of a row, by any owner. strict: a result for
  // each piece of an owner's pages.
  struct ContextBytes {
    std::int64_t page = 0;
    std::int64_t query = 0;
    std::int64_t result = 0;
    bool strict = false;
  } context_bytes;
  // Pages that ranks keep of sequences that gave way: places of each group on each coordinate, and by group
  // the bytes of a page, on the rank where that is most and on all of a coordinate.
  struct Offload {
    std::int32_t places = 0;
    std::vector<std::int64_t> page_bytes;
    std::vector<std::int64_t> page_bytes_all;
  } offload;
  std::optional<policy::Retraction> retract;  // EngineOptions::retract
};

// Rows of the ranks' sequence tables: a slot is not reused in the plan that closes it (P4).
constexpr std::int32_t sequence_slots(std::int32_t max_sequences) { return 2 * max_sequences; }

// What submit() checks before it takes a request: ids, ranges, the context.
Status validate(const GenerateRequest& request, std::int64_t vocabulary, std::int32_t context);
// Of it, what is resumed.
Status validate_resume(const GenerateRequest& request, std::int64_t vocabulary, std::int32_t context);

class Scheduler {
 public:
  Scheduler(SchedulerOptions options, std::shared_ptr<const tokenizer::Tokenizer> tokenizer);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // The request has been validated. Events go to the sink from compose(), apply() and cancel(); from here
  // only where a resumed choice turns out to have ended.
  void submit(RequestId id, GenerateRequest request, OutputSink sink, TimePoint now);
  // False where no such request lives.
  bool cancel(RequestId id, TimePoint now);
  std::int32_t cancel_all(TimePoint now);
  void flush_cache() { cache_.flush(); }
  // The ranks hold nothing any more. Requests that outlive ranks give way as if preempted; the others, and
  // those that have seen this kMostLosses times, end with this error.
  void lose_ranks(const Status& why, TimePoint now);
  // Every request ends with this error.
  void fail_all(const Status& failure, TimePoint now);
  // Of a leg (engine/handover_leg.h). Ignored where the choice has ended.
  void handover_called(RequestId id, std::int32_t choice, TimePoint now);
  void arrived(RequestId id, std::int32_t choice, FirstToken first, TimePoint now);
  void handover_ended(RequestId id, std::int32_t choice, const Status& status, TimePoint now);
  // After lose_ranks(), once no plan is in flight: nothing is cached or open on the ranks. The next plan's
  // number.
  PlanNumber begin_epoch();

  // The next plan, or nothing: every coordinate that has something to do has its plans in flight.
  std::optional<StepPlan> compose(TimePoint now);
  // Takes results, those of plans for the same coordinate in plan order.
  void apply(StepResult result, TimePoint now);

  std::size_t in_flight() const { return flights_.size(); }
  PlanNumber last_plan() const { return PlanNumber(next_plan_.value - 1); }
  // Up to which all plans are answered.
  PlanNumber last_answered() const {
    return flights_.empty() ? last_plan() : PlanNumber(flights_.front().number.value - 1);
  }
  bool idle() const { return requests_.empty() && flights_.empty(); }
  bool has_requests() const { return !requests_.empty(); }
  // All but what depends on when it is asked (seconds_since_progress).
  EngineStats stats(TimePoint now) const;
  // Since when work has been waiting without a step ending; nothing when idle.
  std::optional<TimePoint> waiting_since() const;

 private:
  struct FlightItem {
    Sequence* sequence = nullptr;
    std::int64_t end = 0;  // positions computed once it is answered
    bool sampled = false;
  };
  struct Flight {
    PlanNumber number;
    CoordinateSet coordinates;
    std::vector<FlightItem> items;
    std::vector<policy::StepShape> shapes;  // by coordinate
  };

  // A coordinate's plans.
  struct Lane {
    std::int32_t in_flight = 0;
    std::uint64_t composed = 0;
    TimePoint progress{};  // when one was answered last, or the first came to an idle coordinate
  };

  // scheduler_compose.cc
  std::optional<StepPlan> compose_for(CoordinateSet party, TimePoint now);
  void launch(StepPlan& plan, Flight flight, TimePoint now);
  CoordinateSet needs_bare_plan() const;
  void admit(TimePoint now);
  void start(Sequence& sequence, TimePoint now);
  // Sequences that have been admitted and not ended.
  std::int64_t admitted_sequences() const { return std::ssize(running_) + std::ssize(away_); }
  bool try_admit(Sequence& sequence, std::vector<policy::PoolDemand>& demand);
  std::vector<policy::PoolDemand> promised_demand() const;
  std::int64_t expected_pages(const Sequence& sequence, const KvGroup& group) const;
  // Whether its prompt's log-probabilities are asked for and still to be computed.
  static bool scores_prompt(const Sequence& sequence) {
    return sequence.choice == 0 && !sequence.request->prompt_logprobs_done;
  }
  std::int32_t cacheable_pages(const Sequence& sequence) const;
  void match_prefix(Sequence& sequence);
  void rematch_prefix(Sequence& sequence);
  void add_decodes(StepPlan& plan, Flight& flight);
  // Whether a sequence that wants pages may get them on a coordinate that the plan is not for.
  bool finds_room_beside(CoordinateSet party) const;
  // Of the sequences that decode, those that may be in the next plan, and how many of them.
  struct DecodeTurn {
    std::uint64_t plans_apart = 1;
    std::int64_t most = 0;
  };
  DecodeTurn decode_turn(CoordinateSet party) const;
  static bool wants_decode(const Sequence& sequence) {
    return sequence.decoding() && sequence.output_tokens() + sequence.pending < sequence.max_tokens;
  }
  void add_prefills(StepPlan& plan, Flight& flight, TimePoint now);
  // Seconds that a step of such stages delays what comes behind it: all of them, as slow as the slowest.
  double step_seconds(const StepResult& result) const;
  bool has_slot(const Sequence& sequence) const { return sequence.open_on_ranks() || !free_slots_.empty(); }
  void add_item(StepPlan& plan, Flight& flight, Sequence& sequence, std::int64_t count);
  void open_on_ranks(StepPlan& plan, Sequence& sequence);
  void take_closes(StepPlan& plan);
  bool break_stand_still(TimePoint now);

  // scheduler_retract.cc
  // Makes a running sequence give way (policy/retraction.h). False where nobody can.
  bool retract_one();
  policy::RetractionCandidate retraction_candidate(const Sequence& sequence) const;
  // Of its pages, the first that nobody else holds, and what it then would have to keep, by pool.
  std::int32_t first_own_page(const Sequence& sequence) const;
  std::vector<std::int32_t> pages_to_stow(const Sequence& sequence) const;
  policy::ReturnSeconds return_seconds(const Sequence& sequence) const;
  double steps_left(const Sequence& sequence) const;
  // What the plans to come are told to copy.
  void stow(Sequence& sequence);
  bool bring_back(Sequence& sequence);
  void drop_stowed(Sequence& sequence);
  void take_copies(StepPlan& plan);
  void forget_stowed();
  // Pages may still be read or written by copies that plans have not done: whoever fills pages by other means
  // than plans waits.
  bool copies_are_due() const { return !copies_.empty() || last_copies_ > last_answered(); }
  std::int64_t offloaded_bytes() const;

  // scheduler_context.cc
  CoordinateSet all_coordinates() const { return CoordinateSet::first(options_.coordinates); }
  CoordinateSet holders(const Sequence& sequence) const;  // of its pages
  CoordinateSet touched_by(const Sequence& sequence) const;
  std::vector<CoordinateSet> parties();
  std::int32_t most_in_flight(CoordinateSet party) const;  // of any of them
  void choose_lanes(Sequence& sequence);
  std::vector<double> prefill_load(const Sequence& except) const;
  std::int32_t decode_owner(const Sequence& sequence) const;
  std::int32_t new_page_owner(const Sequence& sequence) const;
  std::vector<std::int32_t> arrival_owners(const Sequence& sequence) const;
  Status grow_for_decode(Sequence& sequence, CoordinateSet party);
  Status grow_for_prefill(Sequence& sequence, std::int64_t count, CoordinateSet party);
  void add_prefill_items(StepPlan& plan, Flight& flight, Sequence& sequence, WorkItem whole);
  bool passes_queries(const Sequence& sequence, std::int32_t coordinate,
                      std::span<const WorkItem> items) const;
  // Of the coordinate that takes longest.
  const policy::StepShape& slowest(const Flight& flight) const;

  // scheduler_handover.cc
  void attach_legs(RequestRecord& record, Sequence& sequence);
  static void close_legs(Sequence& sequence, const Status& why);
  Sequence* find_choice(RequestId id, std::int32_t choice) const;
  void depart(Sequence& sequence, OutputEvent&& event);
  bool reserve_arrival(Sequence& sequence);

  // scheduler_results.cc
  std::optional<Flight> land(const StepResult& result, TimePoint now);
  void measure_busy(const StepResult& result, const Flight& flight, TimePoint now);
  void observe_step(const StepResult& result, const Flight& flight);
  void take_item(const FlightItem& item, const SampledToken* sampled, TimePoint now);
  void take_prompt_logprobs(StepResult& result, const Flight& flight);
  // Both return whether the choice goes on; where not, the sequence may be gone.
  bool on_prompt_computed(Sequence& sequence, TimePoint now);
  bool on_token(Sequence& sequence, const SampledToken& sampled, TimePoint now);
  // Takes the token into the choice's tokens: its text, and whether it ends the choice.
  void take_token(Sequence& sequence, TokenId id, OutputEvent& event);
  void measure_token(Sequence& sequence, TimePoint now);
  void fail_flight(const Flight& flight, const Status& failure, TimePoint now);
  void lose_flight(const Flight& flight);

  // scheduler_resume.cc
  void resume(RequestRecord& request, TimePoint now);
  Status replay(Sequence& sequence, const ResumedChoice& from, OutputEvent& event);

  // scheduler.cc
  std::vector<RequestId> request_ids() const;  // ascending
  // Departing sequences only once they have been called.
  void queue(Sequence& sequence, bool at_head);
  // why: what a leg of another worker is told where it has not ended by itself.
  void end_choice(Sequence& sequence, OutputEvent event, TimePoint now, const Status& why = {});
  void end_request(RequestRecord& request, FinishReason reason, Status error, TimePoint now);
  void finish_request(RequestRecord& request, OutputEvent& event, TimePoint now);
  void release_held_back(RequestRecord& request);
  // Takes a sequence from the running, or the queue; it goes, or queues again, once nothing is in flight.
  void retire(Sequence& sequence, SequenceState state, const Status& why = {});
  void settle(Sequence& sequence);

  SchedulerOptions options_;
  std::shared_ptr<const tokenizer::Tokenizer> tokenizer_;
  std::vector<TokenId> end_ids_;  // that end an answer, ascending
  kv::KvCache cache_;
  policy::CostModel cost_;
  policy::OutputLengths lengths_;
  kv::OffloadTable offload_;
  policy::CopyRate copy_rate_;
  std::vector<PageCopy> copies_;  // for the next plan
  PlanNumber last_copies_{0};     // the last plan that copies

  std::unordered_map<std::uint64_t, std::unique_ptr<RequestRecord>> requests_;
  std::unordered_map<Sequence*, std::unique_ptr<Sequence>> sequences_;
  std::deque<Sequence*> queue_;
  std::vector<Sequence*> running_;   // by arrival
  std::vector<Sequence*> away_;      // kAway
  std::vector<Sequence*> uncalled_;  // kUncalled
  std::vector<SequenceSlot> free_slots_;
  std::vector<SequenceSlot> to_close_;
  std::deque<Flight> flights_;  // by number
  std::vector<Lane> lanes_;     // by coordinate
  std::uint64_t next_arrival_ = 0;
  std::int32_t held_back_ = 0;  // sequences in kHeldBack
  PlanNumber next_plan_{1};
  bool retracted_in_plan_ = false;

  TimePoint progress_{};         // when anything went on last, or work came to an idle engine
  std::vector<BusyMeter> busy_;  // by stage
  EngineStats totals_;           // counters and histograms
  std::vector<policy::PrefillCandidate> candidates_;
  std::vector<Sequence*> candidate_sequences_;
};

}  // namespace shoal::engine
