package io.orlop;

import java.lang.foreign.MemorySegment;
import java.lang.ref.Cleaner;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/** Takes what a chat model writes apart: reasoning, content, tool calls. For one sample, one thread. */
public final class ChatOutput implements AutoCloseable {
  private static final class Core extends Handle {
    Core(MemorySegment address) {
      super(address, "chat output");
    }

    @Override
    void free(MemorySegment address) {
      Native.chatOutputRelease(address);
    }
  }

  private final Core core;
  private final Cleaner.Cleanable cleanable;

  /** engine null: none. */
  ChatOutput(MemorySegment engine, String json) {
    try (Call c = new Call()) {
      MemorySegment text = c.utf8("options", json);
      c.check(Native.chatOutputCreate(engine, text, text.byteSize(), c.out, c.error));
      core = new Core(c.result());
    }
    cleanable = Handle.CLEANER.register(this, core);
  }

  /**
   * Begins without an engine; then no value may be "auto". With one: {@link Engine#chatOutput}.
   *
   * @param json an object: {@code tools} (OpenAI's array), {@code format} ("hermes", "llama3",
   *     "json", "none"), {@code reasoning} (true, false), {@code prompt} (the rendered prompt)
   * @return the object to push text into
   */
  public static ChatOutput of(String json) {
    return new ChatOutput(MemorySegment.NULL, json);
  }

  /**
   * Takes the next piece of text.
   *
   * @param text any piece
   * @param last whether it is the last one
   * @return what is new
   */
  public List<ChatEvent> push(String text, boolean last) {
    List<ChatEvent> events = new ArrayList<>();
    for (Object item : (List<?>) Json.parse(pushJson(text, last))) {
      Map<?, ?> event = (Map<?, ?>) item;
      String piece = (String) event.get("text");
      int index = event.get("index") instanceof Long n ? n.intValue() : 0;
      switch ((String) event.get("type")) {
        case "content" -> events.add(new ChatEvent.Content(piece));
        case "reasoning" -> events.add(new ChatEvent.Reasoning(piece));
        case "tool_call" -> events.add(new ChatEvent.ToolCall(index, (String) event.get("name")));
        case "tool_arguments" -> events.add(new ChatEvent.ToolArguments(index, piece));
        default -> {} // of a newer library
      }
    }
    return events;
  }

  /**
   * As {@link #push}, with the events as the library writes them.
   *
   * @param text any piece
   * @param last whether it is the last one
   * @return a JSON array
   */
  public String pushJson(String text, boolean last) {
    MemorySegment address = core.enter();
    try (Call c = new Call()) {
      MemorySegment piece = c.utf8("text", text);
      c.check(
          Native.chatOutputPush(address, piece, piece.byteSize(), last ? 1 : 0, c.out, c.error));
      return c.bufferText();
    } finally {
      core.exit();
    }
  }

  @Override
  public void close() {
    cleanable.clean();
  }
}
