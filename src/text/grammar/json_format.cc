// date, time, date-time: RFC 3339 (years from 0001, in upper case, without leap seconds, up to 9
// digits of a second). uuid: RFC 9562. ipv4: dotted decimal. ipv6: RFC 4291, 2.2, without zones.
// uri: RFC 3986. email: RFC 5321, without quoted names and address literals. Lengths have bounds
// well inside those that other programs set: a mail address at most 186 characters, a URI 1,900.
#include "text/grammar/json_format.h"

#include <array>
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

std::string email() {
  const std::string atom = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]{1,20}";
  const std::string label = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,28}[A-Za-z0-9])?";
  return group(atom + "(?:\\." + atom + "){0,2}@" + label + "(?:\\." + label + "){0,3}");
}

std::string uri() {
  const std::string percent = "%[0-9A-Fa-f][0-9A-Fa-f]";
  const std::string name = "[A-Za-z0-9._~!$&'()*+,;=-]";  // unreserved, sub-delims
  const auto many = [](const std::string& a, int least, int most) {
    return group(a) + "{" + std::to_string(least) + "," + std::to_string(most) + "}";
  };
  const std::string userinfo = many(name + "|:|" + percent, 0, 20) + "@";
  const std::string host = group("\\[" + ipv6() + "\\]|" + many(name + "|" + percent, 0, 80));
  const std::string authority = group(userinfo) + "?" + host + "(?::[0-9]{0,5})?";
  const std::string pchar = name + "|[:@]|" + percent;
  const std::string path = many(pchar + "|/", 0, 160);
  // After an authority a path starts with /; else it must not start with //.
  const std::string rest =
      group("//" + authority + "(?:/" + path + ")?|/?(?:" + group(pchar) + path + ")?");
  const std::string query = many(pchar + "|[/?]", 0, 160);
  return "[A-Za-z][A-Za-z0-9+.-]{0,19}:" + rest + "(?:\\?" + query + ")?(?:#" + query + ")?";
}

const std::map<std::string_view, std::string>& formats() {
  static const std::map<std::string_view, std::string> all = {
      {"date", date()},
      {"time", time()},
      {"date-time", date() + "T" + time()},
      {"uuid", "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"},
      {"email", email()},
      {"ipv4", ipv4()},
      {"ipv6", ipv6()},
      {"uri", uri()},
  };
  return all;
}

}  // namespace

std::string_view format_regex(std::string_view name) {
  const auto it = formats().find(name);
  return it == formats().end() ? std::string_view() : it->second;
}

std::string format_names() {
  std::string out;
  for (const auto& [name, regex] : formats()) out += (out.empty() ? "" : ", ") + std::string(name);
  return out + ", int32, int64, double";
}

}  // namespace orlop::schema
