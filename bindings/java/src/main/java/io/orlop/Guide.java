package io.orlop;

import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.MemorySegment;
import java.util.List;

/**
 * What an output must be. It is applied to every token, so that the output is a beginning of such a
 * text, and a whole one when it ends by itself.
 */
public final class Guide {
  /** No guide. */
  public static final Guide NONE = new Guide(0, null);

  final int kind;
  final String source;

  private Guide(int kind, String source) {
    this.kind = kind;
    this.source = source;
  }

  /**
   * Any JSON object.
   *
   * @return the guide
   */
  public static Guide jsonObject() {
    return new Guide(1, null);
  }

  /**
   * JSON of a schema.
   *
   * @param schema a JSON Schema
   * @return the guide
   */
  public static Guide jsonSchema(String schema) {
    return new Guide(2, schema);
  }

  /**
   * A regular expression, of the whole output.
   *
   * @param pattern the expression
   * @return the guide
   */
  public static Guide regex(String pattern) {
    return new Guide(3, pattern);
  }

  /**
   * A grammar.
   *
   * @param gbnf the grammar as GBNF
   * @return the guide
   */
  public static Guide grammar(String gbnf) {
    return new Guide(4, gbnf);
  }

  /**
   * One of some texts.
   *
   * @param texts the texts
   * @return the guide
   */
  public static Guide choice(String... texts) {
    return new Guide(5, Json.write(List.of(texts)));
  }

  /**
   * Tool calls.
   *
   * @param json an object with {@code tools}, {@code tool_choice}, {@code format}, {@code parallel},
   *     see {@link ChatOutput}
   * @return the guide
   */
  public static Guide tools(String json) {
    return new Guide(6, json);
  }

  /**
   * How far a text follows a guide.
   *
   * @param acceptedBytes how many of its first bytes (UTF-8) can begin such a text
   * @param complete whether all of it is such a text
   */
  public record Check(long acceptedBytes, boolean complete) {}

  /**
   * Checks how far a text follows this guide. Needs no engine.
   *
   * @param text the text
   * @return how far
   * @throws InvalidArgumentException if the guide's source is wrong
   * @throws UnsupportedException if the source has what the library cannot do; the message says where
   */
  public Check check(String text) {
    try (Call c = new Call()) {
      MemorySegment from = source == null ? MemorySegment.NULL : c.utf8("guide", source);
      MemorySegment of = c.utf8("text", text);
      MemorySegment accepted = c.arena.allocate(JAVA_LONG);
      MemorySegment complete = c.arena.allocate(JAVA_INT);
      c.check(
          Native.guideCheck(
              kind, from, from.byteSize(), of, of.byteSize(), accepted, complete, c.error));
      return new Check(accepted.get(JAVA_LONG, 0), complete.get(JAVA_INT, 0) != 0);
    }
  }
}
