// One request of a worker without a model: its choices run in the engine, its answer goes out as they come.
//
// Thread-safety: of the worker's loop.
// Ownership: held by its sequences' callbacks, by its rooms and, while it has stalled, by the worker. Refers
// to
//   the worker's ground.
// Invariants: the answer ends once; when it has, none of its sequences runs and none of its rooms is open.

#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "cli/fake_engine.h"
#include "cli/fake_rooms.h"
#include "core/clock.h"
#include "serving/answer_format.h"
#include "wire/inner_note.h"
#include "wire/openai_request.h"
#include "wire/response_writer.h"
#include "wire/shoal_resume.h"

namespace shoal::cli {

// What it does wrong on purpose.
enum class FakeHarm : std::uint8_t {
  kNone,
  kStall,        // after three tokens a stream pauses for good
  kCut,          // after three tokens the connection breaks
  kGarbage,      // events that are none
  kRepeatUsage,  // usage is said twice
  kLieIdle,      // its reports say that it is idle
  kRefuse,       // 503 for every request
};

// A request as it was read.
struct FakeRequest {
  wire::CommonFields fields;
  std::int64_t prompt_tokens = 0;  // of all prompts
  std::int64_t longest_prompt = 1;
  std::int32_t choices = 1;
  std::int64_t max_tokens = 64;
  std::vector<wire::ResumedFields> resume;
  bool inner = false;
  std::string answer;
  std::int64_t created = 0;
};

class FakeAnswer : public std::enable_shared_from_this<FakeAnswer> {
 public:
  // What a worker's answers share.
  struct Ground {
    FakeEngine& engine;
    FakeRooms& rooms;
    FakeHarm harm = FakeHarm::kNone;
    bool prefills = false;                       // its legs depart; else they arrive
    std::set<std::shared_ptr<FakeAnswer>> held;  // that have stalled
  };

  FakeAnswer(Ground& ground, FakeRequest request, wire::ResponsePtr response, bool chat);

  void start();
  // abort: the answer ends with what there is; else nobody is there to have it.
  void cancel(bool abort);

 private:
  struct Result {
    std::string text;
    std::int64_t tokens = 0;
    std::int64_t bytes = 0;  // of its text, sent and resumed
    bool begun = false;
    bool done = false;
  };

  wire::AnswerId id() const { return {request_.answer, request_.created, request_.fields.model}; }
  bool streams() const { return request_.fields.stream; }
  std::shared_ptr<FakeSequence> make_sequence(std::int32_t choice);
  // Takes up what another worker has put out; false where nothing is left to do.
  bool take_up(std::int32_t choice, FakeSequence& sequence);
  Status enter_room(const std::shared_ptr<FakeSequence>& sequence);
  void submit(const std::shared_ptr<FakeSequence>& sequence);
  void on_token(FakeSequence& sequence, bool last);
  void finish_choice(std::size_t index, wire::FinishReason reason, std::string& out);
  void complete(std::string& out);
  void fail(const Status& why);
  void note(std::string& out, const wire::InnerNote& what) const {
    if (request_.inner) what.append_to(out);
  }

  Ground& ground_;
  const FakeRequest request_;
  wire::ResponsePtr response_;
  const std::unique_ptr<serving::AnswerFormat> format_;
  std::vector<Result> results_;
  std::vector<std::weak_ptr<FakeSequence>> sequences_;  // the engine holds them, and they this answer
  std::int32_t left_;
  bool over_ = false;
  TimePoint arrived_ = now();
  double first_token_ = 0;
};

}  // namespace shoal::cli
