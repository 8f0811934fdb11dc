package io.orlop;

import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.MemorySegment;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;

/** Which prefix to save, and how a state is signed or salted. Immutable: each method answers a copy. */
public final class StateParams {
  private String text;
  private int[] tokens;
  private String messages;
  private int flags;
  private String cacheSalt;
  private byte[] key;
  private Duration deadline = Duration.ZERO;

  private StateParams() {}

  private StateParams copy() {
    StateParams p = new StateParams();
    p.text = text;
    p.tokens = tokens;
    p.messages = messages;
    p.flags = flags;
    p.cacheSalt = cacheSalt;
    p.key = key;
    p.deadline = deadline;
    return p;
  }

  /**
   * No prefix: for loading.
   *
   * @return the parameters
   */
  public static StateParams none() {
    return new StateParams();
  }

  /**
   * The prefix as text.
   *
   * @param text the prefix
   * @return the parameters
   */
  public static StateParams text(String text) {
    StateParams p = new StateParams();
    p.text = text;
    return p;
  }

  /**
   * The prefix as token ids.
   *
   * @param tokens the prefix
   * @return the parameters
   */
  public static StateParams tokens(int... tokens) {
    StateParams p = new StateParams();
    p.tokens = tokens.clone();
    return p;
  }

  /**
   * The prefix as chat messages.
   *
   * @param messages the conversation
   * @return the parameters
   */
  public static StateParams messages(List<Message> messages) {
    StateParams p = new StateParams();
    p.messages = Message.json(messages);
    return p;
  }

  /**
   * Of a text: the model's BOS token is not added.
   *
   * @return a copy
   */
  public StateParams noBos() {
    StateParams p = copy();
    p.flags |= 4;
    return p;
  }

  /**
   * Of a text: control tokens in it are plain text.
   *
   * @return a copy
   */
  public StateParams plain() {
    StateParams p = copy();
    p.flags |= 8;
    return p;
  }

  /**
   * Saving: the salt of the request that computes what is missing. Loading: the one that the state
   * will serve, unless it is signed.
   *
   * @param cacheSalt the salt
   * @return a copy
   */
  public StateParams cacheSalt(String cacheSalt) {
    StateParams p = copy();
    p.cacheSalt = cacheSalt;
    return p;
  }

  /**
   * Saving: signs the state (HMAC-SHA-256). Loading: the state must carry its signature, and then
   * serves every salt.
   *
   * @param key a secret of 16 to 1024 bytes
   * @return a copy
   */
  public StateParams key(byte[] key) {
    StateParams p = copy();
    p.key = key.clone();
    return p;
  }

  /**
   * Saving: how long computing what is missing may take.
   *
   * @param deadline the time; zero: any
   * @return a copy
   */
  public StateParams deadline(Duration deadline) {
    StateParams p = copy();
    p.deadline = deadline;
    return p;
  }

  MemorySegment write(Call c, Path path) {
    Struct s = Struct.STATE_PARAMS;
    MemorySegment m = c.struct(s);
    m.set(JAVA_INT, s.at("flags"), flags);
    c.text(m, s.at("text"), "text", text);
    if (tokens != null) Call.put(m, s.at("tokens"), c.ints(tokens), tokens.length);
    c.text(m, s.at("messages"), "messages", messages);
    c.text(m, s.at("cache_salt"), "cache_salt", cacheSalt);
    if (key != null) Call.put(m, s.at("key"), c.bytes(key), key.length);
    c.text(m, s.at("path"), "path", path == null ? null : path.toString());
    m.set(JAVA_LONG, s.at("deadline_us"), ParamsWriter.micros(deadline));
    return m;
  }
}
