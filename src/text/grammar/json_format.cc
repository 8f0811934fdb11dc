// date, time, date-time, duration: RFC 3339 (years from 0001, in upper case, without leap seconds,
// up to 9 digits of a second). uuid: RFC 9562. ipv4: dotted decimal. ipv6: RFC 4291, 2.2, without
// zones. uri: RFC 3986. email: RFC 5321, without quoted names and address literals. Written on
// their own, a mail address has at most 186 characters and a URI 1,800, well inside what other
// programs allow.
#include "text/grammar/json_format.h"

#include <map>

namespace orlop::schema {
namespace {

std::string group(const std::string& a) {
  return "(?:" + a + ")";
}

std::string date() {
  const std::string four = "(?:0[48]|[2468][048]|[13579][26])";  // 04 to 96 by 4
  const std::string leap = group("[0-9][0-9]" + four + "|" + four + "00");
  const std::string any = group("[1-9][0-9][0-9][0-9]|0[1-9][0-9][0-9]|00[1-9][0-9]|000[1-9]");
  const std::string day =
      "(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
      "|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
      "|02-(?:0[1-9]|1[0-9]|2[0-8]))";
  return group(any + "-" + day + "|" + leap + "-02-29");
}

std::string time() {
  const std::string clock = "(?:[01][0-9]|2[0-3]):[0-5][0-9]";
  return clock + ":[0-5][0-9](?:\\.[0-9]{1,9})?(?:Z|[+-]" + clock + ")";
}

std::string ipv4() {
  const std::string part = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])";
  return group(part + "(?:\\." + part + "){3}");
}

// Eight groups of four digits; :: once for one or more of them that are 0; the last two may be
// ipv4.
std::string ipv6() {
  const std::string h = "[0-9a-fA-F]{1,4}", tail = group(h + ":" + h + "|" + ipv4());
  const auto times = [](const std::string& a, int least, int most) {
    return group(a) + "{" + std::to_string(least) + "," + std::to_string(most) + "}";
  };
  std::string all = times(h + ":", 6, 6) + tail;
  for (int before = 0; before <= 7;
       ++before) {  // groups before the ::, after it at most 7 - before
    const int after = 7 - before;
    const std::string head = before == 0 ? "" : h + times(":" + h, before - 1, before - 1);
    std::string ends = after >= 2 ? times(h + ":", 0, after - 2) + tail + "|" : "";
    ends += after >= 1 ? h + "|" : "";
    all += "|" + head + "::" + group(ends);
  }
  return group(all);
}

// RFC 3339, appendix A: units from large to small, none left out in between.
std::string duration() {
  const auto part = [](const std::string& unit, const std::string& smaller) {
    return "[0-9]{1,5}" + unit + group(smaller) + "?";
  };
  const std::string second = "[0-9]{1,5}S", minute = part("M", second), hour = part("H", minute);
  const std::string day = "[0-9]{1,5}D", month = part("M", day), year = part("Y", month);
  const std::string clock = "T" + group(hour + "|" + minute + "|" + second);
  return "P" + group("[0-9]{1,5}W|" + group(year + "|" + month + "|" + day) + group(clock) + "?|" +
                     clock);
}

// a so many times, if that is what counts.
std::string many(const std::string& a, int least, int most, bool bounded) {
  const std::string times = std::to_string(least) + "," + (bounded ? std::to_string(most) : "");
  return group(a) + "{" + times + "}";
}

std::string email(bool bounded) {
  const std::string atom = many("[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]", 1, 20, bounded);
  const std::string label =
      "[A-Za-z0-9]" + group(many("[A-Za-z0-9-]", 0, 28, bounded) + "[A-Za-z0-9]") + "?";
  return atom + many("\\." + atom, 0, 2, bounded) + "@" + label +
         many("\\." + label, 0, 3, bounded);
}

std::string uri(bool bounded, bool literals) {
  const std::string percent = "%[0-9A-Fa-f][0-9A-Fa-f]";
  const std::string name = "[A-Za-z0-9._~!$&'()*+,;=-]";  // unreserved, sub-delims
  const std::string userinfo = many(name + "|:|" + percent, 0, 20, bounded) + "@";
  const std::string host =
      group((literals ? "\\[" + ipv6() + "\\]|" : "") + many(name + "|" + percent, 0, 80, bounded));
  const std::string authority = group(userinfo) + "?" + host + "(?::[0-9]{0,5})?";
  const std::string pchar = name + "|[:@]|" + percent;
  const std::string path = many(pchar + "|/", 0, 160, bounded);
  // After an authority a path starts with /; else it must not start with //.
  const std::string rest =
      group("//" + authority + "(?:/" + path + ")?|/?(?:" + group(pchar) + path + ")?");
  const std::string query = many(pchar + "|[/?]", 0, 160, bounded);
  return "[A-Za-z]" + many("[A-Za-z0-9+.-]", 0, 19, bounded) + ":" + rest + "(?:\\?" + query +
         ")?(?:#" + query + ")?";
}

using Formats = std::map<std::string_view, std::string>;

Formats make(FormatUse use) {
  const bool bounded = use == FormatUse::alone;
  return {
      {"date", date()},
      {"time", time()},
      {"date-time", date() + "T" + time()},
      {"duration", duration()},
      {"uuid", "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"},
      {"email", email(bounded)},
      {"ipv4", ipv4()},
      {"ipv6", ipv6()},
      {"uri", uri(bounded, use != FormatUse::counted)},
  };
}

const Formats& formats(FormatUse use) {
  static const Formats alone = make(FormatUse::alone), any = make(FormatUse::any),
                       counted = make(FormatUse::counted);
  return use == FormatUse::alone ? alone : use == FormatUse::any ? any : counted;
}

}  // namespace

std::string_view format_regex(std::string_view name, FormatUse use) {
  const auto it = formats(use).find(name);
  return it == formats(use).end() ? std::string_view() : it->second;
}

std::string format_names() {
  std::string out;
  for (const auto& [name, regex] : formats(FormatUse::alone)) out += std::string(name) + ", ";
  return out + "int32, int64, double";
}

}  // namespace orlop::schema
