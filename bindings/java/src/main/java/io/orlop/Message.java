package io.orlop;

import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * A chat message.
 *
 * @param role who speaks: "system", "user", "assistant" or what else the model's template knows
 * @param content what is said; never read as control tokens
 */
public record Message(String role, String content) {
  /**
   * A system message.
   *
   * @param content its text
   * @return the message
   */
  public static Message system(String content) {
    return new Message("system", content);
  }

  /**
   * A user's message.
   *
   * @param content its text
   * @return the message
   */
  public static Message user(String content) {
    return new Message("user", content);
  }

  /**
   * An answer of the model.
   *
   * @param content its text
   * @return the message
   */
  public static Message assistant(String content) {
    return new Message("assistant", content);
  }

  /**
   * Messages as the library takes them.
   *
   * @param messages the conversation
   * @return a JSON array
   */
  public static String json(List<Message> messages) {
    return Json.write(messages);
  }

  Map<String, String> toMap() {
    Map<String, String> map = new LinkedHashMap<>();
    map.put("role", role);
    map.put("content", content);
    return map;
  }
}
