#include "cli/trace_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <optional>
#include <random>
#include <string_view>

#include "wire/json.h"

namespace shoal::cli {
namespace {

constexpr double kMooncakeStep = 3.0;
constexpr std::int64_t kMostTokens = 1 << 26;
// Low ids are control tokens in every vocabulary here.
constexpr int kFirstId = 3;

std::vector<std::string_view> cells(std::string_view line) {
  std::vector<std::string_view> out;
  while (true) {
    const std::size_t comma = line.find(',');
    out.push_back(line.substr(0, comma));
    if (comma == std::string_view::npos) return out;
    line.remove_prefix(comma + 1);
  }
}

template <typename T>
std::optional<T> number(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// "2023-11-16 18:15:46.6805900", as seconds since 1970.
std::optional<double> seconds_of(std::string_view text) {
  int year = 0, month = 0, day = 0, hour = 0, minute = 0;
  double second = 0;
  const std::string copy(text);
  if (std::sscanf(copy.c_str(), "%d-%d-%d %d:%d:%lf", &year, &month, &day, &hour, &minute, &second) != 6)
    return std::nullopt;
  namespace chrono = std::chrono;
  const chrono::year_month_day date{chrono::year(year), chrono::month(static_cast<unsigned>(month)),
                                    chrono::day(static_cast<unsigned>(day))};
  if (!date.ok()) return std::nullopt;
  const auto days = static_cast<double>(chrono::sys_days(date).time_since_epoch().count());
  return ((days * 24 + hour) * 60 + minute) * 60 + second;
}

bool sane(const TraceRequest& request) {
  const auto tokens = [](std::int64_t n) { return n >= 0 && n <= kMostTokens; };
  return std::isfinite(request.at) && tokens(request.input_tokens) && tokens(request.output_tokens);
}

std::optional<TraceRequest> azure_line(std::string_view line) {
  const auto parts = cells(line);
  if (parts.size() != 3) return std::nullopt;
  const auto at = seconds_of(parts[0]);
  const auto input = number<std::int64_t>(parts[1]);
  const auto output = number<std::int64_t>(parts[2]);
  if (!at || !input || !output) return std::nullopt;
  return TraceRequest{*at, *input, *output, {}};
}

std::optional<TraceRequest> servegen_line(std::string_view line) {
  const auto parts = cells(line);
  if (parts.size() < 3) return std::nullopt;
  const auto at = number<double>(parts[0]);
  const auto input = number<std::int64_t>(parts[1]);
  const auto output = number<std::int64_t>(parts[2]);
  if (!at || !input || !output) return std::nullopt;
  return TraceRequest{*at, *input, *output, {}};
}

std::optional<TraceRequest> mooncake_line(std::string_view line) {
  const auto document = wire::JsonDocument::parse(line);
  if (!document.ok()) return std::nullopt;
  const wire::JsonElement root = document->root();
  TraceRequest request;
  double milliseconds = 0;
  simdjson::dom::array ids;
  if (root["timestamp"].get_double().get(milliseconds) != simdjson::SUCCESS ||
      root["input_length"].get_int64().get(request.input_tokens) != simdjson::SUCCESS ||
      root["output_length"].get_int64().get(request.output_tokens) != simdjson::SUCCESS)
    return std::nullopt;
  request.at = milliseconds / 1000;
  if (root["hash_ids"].get_array().get(ids) == simdjson::SUCCESS) {
    for (const wire::JsonElement each : ids) {
      std::int64_t id = 0;
      if (each.get_int64().get(id) != simdjson::SUCCESS) return std::nullopt;
      request.blocks.push_back(id);
    }
  }
  return request;
}

enum class Format : std::uint8_t { kMooncake, kAzure, kServeGen };

std::optional<Format> format_of(std::string_view first) {
  if (first.starts_with('{')) return Format::kMooncake;
  if (first.starts_with("TIMESTAMP,ContextTokens,GeneratedTokens")) return Format::kAzure;
  if (first.starts_with("arrived_at,input_tokens,output_tokens")) return Format::kServeGen;
  return std::nullopt;
}

}  // namespace

Expected<std::vector<TraceRequest>> read_trace(const std::string& file, std::size_t most,
                                               std::uint64_t seed) {
  std::ifstream in(file);
  if (!in) return Status(ErrorCode::kIo, fmt::format("{}: cannot be read", file));
  std::vector<TraceRequest> requests;
  std::optional<Format> format;
  std::mt19937_64 random(seed);
  std::string line;
  for (int lines = 1; std::getline(in, line) && (most == 0 || requests.size() < most); ++lines) {
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty()) continue;
    if (!format) {
      format = format_of(line);
      if (!format)
        return Status(
            ErrorCode::kInvalidArgument,
            fmt::format("{}: is no trace of Mooncake (JSON lines), Azure or ServeGen (CSV with a head line)",
                        file));
      if (*format != Format::kMooncake) continue;
    }
    auto request = *format == Format::kMooncake ? mooncake_line(line)
                   : *format == Format::kAzure  ? azure_line(line)
                                                : servegen_line(line);
    if (!request || !sane(*request))
      return Status(ErrorCode::kInvalidArgument,
                    fmt::format("{}:{}: is no request of such a trace", file, lines));
    if (*format == Format::kMooncake)
      request->at += kMooncakeStep * static_cast<double>(random() >> 11) * 0x1.0p-53;
    requests.push_back(*std::move(request));
  }
  if (requests.empty())
    return Status(ErrorCode::kInvalidArgument, fmt::format("{}: holds no requests", file));
  std::ranges::stable_sort(requests, {}, &TraceRequest::at);
  const double begin = requests.front().at;
  for (TraceRequest& request : requests) request.at -= begin;
  return requests;
}

std::int64_t scaled(std::int64_t tokens, double scale) {
  return std::max<std::int64_t>(1, std::llround(static_cast<double>(tokens) * scale));
}

std::vector<std::int32_t> trace_prompt(const TraceRequest& request, double scale, int vocabulary,
                                       std::uint64_t seed) {
  const auto length = static_cast<std::size_t>(scaled(request.input_tokens, scale));
  const auto block = static_cast<std::size_t>(scaled(kTraceBlockTokens, scale));
  std::vector<std::int32_t> ids;
  ids.reserve(length);
  const auto draw = [&](std::uint64_t from, std::size_t count) {
    std::mt19937_64 random(from);
    while (count-- > 0 && ids.size() < length)
      ids.push_back(kFirstId +
                    static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(vocabulary - kFirstId)));
  };
  for (const std::int64_t id : request.blocks)
    draw(static_cast<std::uint64_t>(id) * 0x9e3779b97f4a7c15 + 1, block);
  draw(seed, length - std::min(length, ids.size()));
  return ids;
}

}  // namespace shoal::cli
