package io.orlop;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * As much JSON as the library's texts need: maps, lists, texts, numbers, booleans and null, written
 * and read.
 */
public final class Json {
  private final String text;
  private int at;

  private Json(String text) {
    this.text = text;
  }

  /**
   * Writes a value.
   *
   * @param value a Map with text keys, an Iterable, a CharSequence, a Number, a Boolean or null; of
   *     anything else its toString as a text
   * @return the JSON
   */
  public static String write(Object value) {
    StringBuilder out = new StringBuilder();
    write(value, out);
    return out.toString();
  }

  private static void write(Object value, StringBuilder out) {
    if (value instanceof Message m) value = m.toMap();
    if (value == null || value instanceof Boolean) {
      out.append(value);
    } else if (value instanceof Number n) {
      if (!Double.isFinite(n.doubleValue()))
        throw new InvalidArgumentException("JSON has no number " + n);
      out.append(n);
    } else if (value instanceof Map<?, ?> map) {
      String comma = "{";
      for (Map.Entry<?, ?> e : map.entrySet()) {
        out.append(comma);
        quote(e.getKey().toString(), out);
        out.append(':');
        write(e.getValue(), out);
        comma = ",";
      }
      out.append(map.isEmpty() ? "{}" : "}");
    } else if (value instanceof Iterable<?> list && !(value instanceof java.nio.file.Path)) {
      out.append('[');
      String comma = "";
      for (Object e : list) {
        out.append(comma);
        write(e, out);
        comma = ",";
      }
      out.append(']');
    } else {
      quote(value.toString(), out);
    }
  }

  private static void quote(String s, StringBuilder out) {
    out.append('"');
    for (int i = 0; i < s.length(); i++) {
      char c = s.charAt(i);
      if (c == '"' || c == '\\') out.append('\\').append(c);
      else if (c < 0x20) out.append(String.format("\\u%04x", (int) c));
      else out.append(c);
    }
    out.append('"');
  }

  /**
   * Reads a value.
   *
   * @param json one JSON value
   * @return a Map, List, String, Long (whole numbers that fit), Double, Boolean or null
   * @throws InvalidArgumentException if it is no JSON
   */
  public static Object parse(String json) {
    Json reader = new Json(json);
    Object value = reader.value(0);
    reader.space();
    if (reader.at != json.length()) throw reader.bad("something stands behind the value");
    return value;
  }

  private Object value(int depth) {
    if (depth > 200) throw bad("nested too deeply");
    space();
    switch (peek()) {
      case '{' -> {
        Map<String, Object> map = new LinkedHashMap<>();
        at++;
        if (!taken('}')) {
          do {
            space();
            String key = string();
            need(':');
            map.put(key, value(depth + 1));
          } while (taken(','));
          need('}');
        }
        return map;
      }
      case '[' -> {
        List<Object> list = new ArrayList<>();
        at++;
        if (!taken(']')) {
          do list.add(value(depth + 1));
          while (taken(','));
          need(']');
        }
        return list;
      }
      case '"' -> {
        return string();
      }
      default -> {
        return word();
      }
    }
  }

  private Object word() {
    int begin = at;
    while (at < text.length() && ",]} \t\r\n".indexOf(text.charAt(at)) < 0) at++;
    String word = text.substring(begin, at);
    switch (word) {
      case "true":
        return true;
      case "false":
        return false;
      case "null":
        return null;
      default:
        if (!word.matches("-?(0|[1-9]\\d*)(\\.\\d+)?([eE][-+]?\\d+)?")) throw bad("no value");
        if (word.matches("-?\\d{1,19}")) {
          try {
            return Long.valueOf(word);
          } catch (NumberFormatException beyond) {
            return Double.valueOf(word);
          }
        }
        double number = Double.parseDouble(word);
        if (Double.isInfinite(number)) throw bad("a number beyond 64 bits");
        return number;
    }
  }

  private String string() {
    if (peek() != '"') throw bad("a text is missing");
    at++;
    StringBuilder out = new StringBuilder();
    for (; ; ) {
      char c = peek();
      at++;
      if (c == '"') return out.toString();
      if (c < 0x20) throw bad("a control character in a text");
      if (c != '\\') {
        out.append(c);
        continue;
      }
      char escaped = peek();
      at++;
      int plain = "\"\\/bfnrt".indexOf(escaped);
      if (plain >= 0) {
        out.append("\"\\/\b\f\n\r\t".charAt(plain));
      } else if (escaped == 'u' && text.substring(at, Math.min(at + 4, text.length())).matches("[0-9a-fA-F]{4}")) {
        out.append((char) Integer.parseInt(text.substring(at, at + 4), 16));
        at += 4;
      } else {
        throw bad("an unknown escape");
      }
    }
  }

  private char peek() {
    if (at >= text.length()) throw bad("it ends too early");
    return text.charAt(at);
  }

  private void space() {
    while (at < text.length() && " \t\r\n".indexOf(text.charAt(at)) >= 0) at++;
  }

  private boolean taken(char c) {
    space();
    if (at >= text.length() || text.charAt(at) != c) return false;
    at++;
    return true;
  }

  private void need(char c) {
    if (!taken(c)) throw bad("'" + c + "' is missing");
  }

  private InvalidArgumentException bad(String why) {
    return new InvalidArgumentException("JSON, at character " + at + ": " + why);
  }
}
