// strftime_now: the conversions of C's strftime in the C locale, local time.
#include <cstdio>
#include <ctime>

#include "text/template_interp.h"

namespace orlop::tmpl {
namespace {

constexpr const char* days[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                "Thursday", "Friday", "Saturday"};
constexpr const char* months[] = {"January", "February", "March",     "April",   "May",      "June",
                                  "July",    "August",   "September", "October", "November", "December"};

// ISO 8601: the week that holds the year's first Thursday is its first.
int iso_week(const std::tm& t, int& year) {
  year = t.tm_year + 1900;
  const int weekday = (t.tm_wday + 6) % 7;  // Monday 0
  int week = (t.tm_yday - weekday + 10) / 7;
  const auto weeks = [](int y) {
    const auto p = [](int v) { return (v + v / 4 - v / 100 + v / 400) % 7; };
    return p(y) == 4 || p(y - 1) == 3 ? 53 : 52;
  };
  if (week < 1) {
    --year;
    week = weeks(year);
  } else if (week > weeks(year)) {
    week = 1;
    ++year;
  }
  return week;
}

class Formatter {
 public:
  Formatter(Run& run, const std::tm& t, int64_t now) : run_(run), t_(t), now_(now) {}

  std::string run(std::string_view format) {
    for (size_t i = 0; i < format.size(); ++i) {
      if (format[i] != '%' || i + 1 >= format.size()) {
        out_ += format[i];
        continue;
      }
      char c = format[++i];
      char flag = 0;
      if ((c == '-' || c == '_' || c == '0' || c == '^') && i + 1 < format.size()) {
        flag = c;
        c = format[++i];
      }
      const size_t from = out_.size();
      one(c, flag);
      if (flag == '^')
        for (size_t k = from; k < out_.size(); ++k)
          if (out_[k] >= 'a' && out_[k] <= 'z') out_[k] = static_cast<char>(out_[k] - 32);
      run_.check_size(out_.size());
      run_.step();
    }
    return std::move(out_);
  }

 private:
  void number(int v, int width, char flag, char pad = '0') {
    if (flag == '-') width = 1;
    if (flag == '_') pad = ' ';
    if (flag == '0') pad = '0';
    char buffer[32];
    std::snprintf(buffer, sizeof buffer, pad == '0' ? "%0*d" : "%*d", width, v);
    out_ += buffer;
  }
  void all(const char* format) { out_ += Formatter(run_, t_, now_).run(format); }

  void one(char c, char flag) {
    const int hour12 = t_.tm_hour % 12 == 0 ? 12 : t_.tm_hour % 12;
    int year = 0;
    switch (c) {
      case 'a': out_ += std::string_view(days[t_.tm_wday]).substr(0, 3); return;
      case 'A': out_ += days[t_.tm_wday]; return;
      case 'b':
      case 'h': out_ += std::string_view(months[t_.tm_mon]).substr(0, 3); return;
      case 'B': out_ += months[t_.tm_mon]; return;
      case 'c': return all("%a %b %e %H:%M:%S %Y");
      case 'C': return number((t_.tm_year + 1900) / 100, 2, flag);
      case 'd': return number(t_.tm_mday, 2, flag);
      case 'D':
      case 'x': return all("%m/%d/%y");
      case 'e': return number(t_.tm_mday, 2, flag, ' ');
      case 'f': out_ += "000000"; return;
      case 'F': return all("%Y-%m-%d");
      case 'g': iso_week(t_, year); return number(year % 100, 2, flag);
      case 'G': iso_week(t_, year); return number(year, 4, flag);
      case 'H': return number(t_.tm_hour, 2, flag);
      case 'I': return number(hour12, 2, flag);
      case 'j': return number(t_.tm_yday + 1, 3, flag);
      case 'k': return number(t_.tm_hour, 2, flag, ' ');
      case 'l': return number(hour12, 2, flag, ' ');
      case 'm': return number(t_.tm_mon + 1, 2, flag);
      case 'M': return number(t_.tm_min, 2, flag);
      case 'n': out_ += '\n'; return;
      case 'p': out_ += t_.tm_hour < 12 ? "AM" : "PM"; return;
      case 'P': out_ += t_.tm_hour < 12 ? "am" : "pm"; return;
      case 'r': return all("%I:%M:%S %p");
      case 'R': return all("%H:%M");
      case 's': out_ += std::to_string(now_); return;
      case 'S': return number(t_.tm_sec, 2, flag);
      case 't': out_ += '\t'; return;
      case 'T':
      case 'X': return all("%H:%M:%S");
      case 'u': return number(t_.tm_wday == 0 ? 7 : t_.tm_wday, 1, flag);
      case 'U': return number((t_.tm_yday + 7 - t_.tm_wday) / 7, 2, flag);
      case 'V': return number(iso_week(t_, year), 2, flag);
      case 'w': return number(t_.tm_wday, 1, flag);
      case 'W': return number((t_.tm_yday + 7 - (t_.tm_wday + 6) % 7) / 7, 2, flag);
      case 'y': return number((t_.tm_year + 1900) % 100, 2, flag);
      case 'Y': return number(t_.tm_year + 1900, flag ? 4 : 1, flag);
      case 'z':
      case 'Z': return;  // a time without zone, as datetime.now() is
      case '%': out_ += '%'; return;
      default:
        fail(Status::unsupported, "chat template, line ", run_.line, ": the time format %",
             std::string(1, c), " is not supported");
    }
  }

  Run& run_;
  const std::tm& t_;
  int64_t now_;
  std::string out_;
};

}  // namespace

Value format_time(Run& run, const Value& format, int64_t now) {
  if (!format.is(Kind::string)) run.error("strftime_now: the format must be a string");
  const std::time_t seconds = static_cast<std::time_t>(now);
  std::tm t{};
#ifdef _WIN32
  const bool ok = localtime_s(&t, &seconds) == 0;
#else
  const bool ok = localtime_r(&seconds, &t) != nullptr;
#endif
  if (!ok) run.error("strftime_now: ", now, " seconds is no time");
  return run.string(Formatter(run, t, now).run(format.text()), !format.s->marks.empty());
}

}  // namespace orlop::tmpl
