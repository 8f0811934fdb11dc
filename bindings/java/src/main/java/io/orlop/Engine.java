package io.orlop;

import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.MemorySegment;
import java.lang.ref.Cleaner;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.function.Consumer;

/**
 * A loaded model and its scheduler. Any number of threads may use one at once. Closing it gives up
 * this handle; requests that still live run on to their end.
 */
public final class Engine implements AutoCloseable {
  /** Text to tokens: add BOS and EOS as the model's tokenizer does. */
  public static final int ADD_SPECIAL = 1;

  /** Text to tokens: control tokens spelled in the text become themselves. */
  public static final int PARSE_SPECIAL = 2;

  /** Tokens to text: leave control tokens out. */
  public static final int SKIP_SPECIAL = 1;

  /** Tokens to bytes: each token's own bytes; they need not be UTF-8. */
  public static final int TOKEN_BYTES = 2;

  private static final class Core extends Handle {
    private Poller poller;

    Core(MemorySegment address) {
      super(address, "engine");
    }

    @Override
    void free(MemorySegment address) {
      Native.engineRelease(address);
      poller.leave();
    }
  }

  private final Core core;
  private final Poller poller;
  private final Cleaner.Cleanable cleanable;

  /** Takes over a native engine that is loaded; on an exception it stays the caller's. */
  Engine(MemorySegment address) {
    poller = new Poller(address);
    core = new Core(address);
    core.poller = poller;
    cleanable = Handle.CLEANER.register(this, core);
  }

  /**
   * Loads a model and waits for it.
   *
   * @param json a JSON object with {@code model} and other keys of the configuration
   * @return the engine
   */
  public static Engine create(String json) {
    if (Thread.currentThread().isVirtual()) return Blocking.join(createAsync(json, null).future());
    try (Call c = new Call()) {
      MemorySegment text = c.utf8("config", json);
      c.check(Native.engineCreate(text, text.byteSize(), c.out, c.error));
      try {
        return new Engine(c.result());
      } catch (Throwable t) {
        Native.engineRelease(c.result());
        throw t;
      }
    }
  }

  /**
   * Loads a model and waits for it.
   *
   * @param model a checkpoint folder or a .gguf file
   * @param options other keys of the configuration
   * @return the engine
   */
  public static Engine create(Path model, Map<String, ?> options) {
    return create(config(model, options));
  }

  /**
   * Loads a model with the default configuration and waits for it.
   *
   * @param model a checkpoint folder or a .gguf file
   * @return the engine
   */
  public static Engine create(Path model) {
    return create(model, Map.of());
  }

  /**
   * A configuration as JSON.
   *
   * @param model a checkpoint folder or a .gguf file
   * @param options other keys
   * @return a JSON object
   */
  public static String config(Path model, Map<String, ?> options) {
    Map<String, Object> all = new LinkedHashMap<>();
    all.put("model", model.toString());
    all.putAll(options);
    return Json.write(all);
  }

  /**
   * Checks the configuration and starts loading on a thread of its own.
   *
   * @param json the configuration
   * @param listener told of progress, on the loading thread, or null
   * @return the load, with the engine as a future
   */
  public static EngineLoading createAsync(String json, Consumer<Progress> listener) {
    try (Call c = new Call()) {
      MemorySegment text = c.utf8("config", json);
      c.check(Native.engineCreateAsync(text, text.byteSize(), c.out, c.error));
      return new EngineLoading(c.result(), listener);
    }
  }

  /**
   * Checks the parameters and the prompt and hands the request to the engine. Never waits for the
   * model.
   *
   * @param params what is asked for
   * @return the request
   */
  public Request generate(GenerateParams params) {
    MemorySegment address = core.enter();
    try (Call c = new Call()) {
      Poller.Signal signal = new Poller.Signal();
      long tag = poller.register(signal);
      try {
        MemorySegment p = ParamsWriter.write(c, params, poller.queue(), tag);
        c.check(Native.asyncGenerate(address, p, c.out, c.error));
      } catch (Throwable t) {
        poller.forget(tag);
        throw t;
      }
      return new Request(new RequestCore(c.result(), poller, tag, signal), params.is.n);
    } finally {
      core.exit();
    }
  }

  /**
   * The whole result as a future; the request frees itself at its end. Cancelling the future cancels
   * the request.
   *
   * @param params what is asked for
   * @return the future, see {@link Request#resultAsync()}
   */
  public CompletableFuture<Result> generateAsync(GenerateParams params) {
    Request request = generate(params);
    CompletableFuture<Result> future = request.resultAsync();
    future.whenComplete((r, e) -> request.close());
    return future;
  }

  /**
   * Model, limits, chosen kernels, threads, bytes and defaults.
   *
   * @return a JSON object
   */
  public String info() {
    MemorySegment address = core.enter();
    try (Call c = new Call()) {
      c.check(Native.engineInfo(address, c.out, c.error));
      return c.bufferText();
    } finally {
      core.exit();
    }
  }

  /**
   * What the engine does and did.
   *
   * @return counts and times
   */
  public EngineStats stats() {
    MemorySegment address = core.enter();
    try (Call c = new Call()) {
      MemorySegment stats = c.struct(Struct.STATS);
      c.check(Native.engineStats(address, stats, c.error));
      return EngineStats.read(stats);
    } finally {
      core.exit();
    }
  }

  private interface Ids {
    int call(MemorySegment engine, MemorySegment ids, long capacity, MemorySegment n, Call c);
  }

  /** Once with room for a guess, once more with what it takes. */
  private int[] ids(long guess, Ids ids) {
    MemorySegment address = core.enter();
    try (Call c = new Call()) {
      MemorySegment n = c.arena.allocate(JAVA_LONG);
      for (long room = guess; ; room = n.get(JAVA_LONG, 0)) {
        MemorySegment out = c.arena.allocate(Math.max(4, 4 * room), 4);
        c.check(ids.call(address, out, room, n, c));
        long count = n.get(JAVA_LONG, 0);
        if (count <= room) return out.asSlice(0, 4 * count).toArray(JAVA_INT);
      }
    } finally {
      core.exit();
    }
  }

  /**
   * Text to tokens.
   *
   * @param text the text
   * @param flags {@link #ADD_SPECIAL}, {@link #PARSE_SPECIAL}, or 0
   * @return the ids
   */
  public int[] tokenize(String text, int flags) {
    return ids(
        text.length() + 2L,
        (engine, out, room, n, c) -> {
          MemorySegment t = c.utf8("text", text);
          return Native.tokenize(engine, t, t.byteSize(), flags, out, room, n, c.error);
        });
  }

  /**
   * The ids that a request with these messages would start from.
   *
   * @param json messages as in {@link GenerateParams.Builder#messages(String)}
   * @return the ids
   */
  public int[] chatTokenize(String json) {
    return ids(
        json.length() + 32L,
        (engine, out, room, n, c) -> {
          MemorySegment t = c.utf8("messages", json);
          return Native.chatTokenize(engine, t, t.byteSize(), out, room, n, c.error);
        });
  }

  /**
   * Tokens to text.
   *
   * @param ids the ids
   * @param flags {@link #SKIP_SPECIAL} or 0
   * @return the text
   */
  public String detokenize(int[] ids, int flags) {
    return new String(detokenizeBytes(ids, flags), StandardCharsets.UTF_8);
  }

  /**
   * Tokens to bytes.
   *
   * @param ids the ids
   * @param flags {@link #SKIP_SPECIAL}, {@link #TOKEN_BYTES}, or 0
   * @return the bytes
   */
  public byte[] detokenizeBytes(int[] ids, int flags) {
    MemorySegment address = core.enter();
    try (Call c = new Call()) {
      c.check(Native.detokenize(address, c.ints(ids), ids.length, flags, c.out, c.error));
      return c.buffer();
    } finally {
      core.exit();
    }
  }

  /**
   * Renders chat messages with the model's template.
   *
   * @param json messages as in {@link GenerateParams.Builder#messages(String)}
   * @return the prompt's text
   */
  public String chatRender(String json) {
    MemorySegment address = core.enter();
    try (Call c = new Call()) {
      MemorySegment text = c.utf8("messages", json);
      c.check(Native.chatRender(address, text, text.byteSize(), c.out, c.error));
      return c.bufferText();
    } finally {
      core.exit();
    }
  }

  /**
   * Begins to take a chat model's output apart.
   *
   * @param json as in {@link ChatOutput#of}; what is left out is "auto": by the model's chat template
   * @return the object to push text into
   */
  public ChatOutput chatOutput(String json) {
    MemorySegment address = core.enter();
    try {
      return new ChatOutput(address, json);
    } finally {
      core.exit();
    }
  }

  /**
   * Computes a prefix, as far as it is not cached, and answers its state. Waits for the engine.
   *
   * @param params the prefix
   * @return the state
   */
  public byte[] saveState(StateParams params) {
    return Blocking.call(() -> save(params, null));
  }

  /**
   * Computes a prefix and writes its state to a file, which is replaced in one step.
   *
   * @param params the prefix
   * @param file the file
   */
  public void saveState(StateParams params, Path file) {
    Blocking.call(() -> save(params, java.util.Objects.requireNonNull(file, "file")));
  }

  private byte[] save(StateParams params, Path file) {
    MemorySegment address = core.enter();
    try (Call c = new Call()) {
      c.check(Native.stateSave(address, params.write(c, file), c.out, c.error));
      return file == null ? c.buffer() : null;
    } finally {
      core.exit();
    }
  }

  /**
   * Puts a saved state into the prefix cache.
   *
   * @param state the state
   * @param params the key that signed it, or the salt that it will serve
   * @return what it holds
   */
  public StateInfo loadState(byte[] state, StateParams params) {
    return Blocking.call(() -> load(java.util.Objects.requireNonNull(state, "state"), params, null));
  }

  /**
   * Puts a state from a file into the prefix cache.
   *
   * @param file the file
   * @param params the key that signed it, or the salt that it will serve
   * @return what it holds
   */
  public StateInfo loadState(Path file, StateParams params) {
    return Blocking.call(() -> load(null, params, java.util.Objects.requireNonNull(file, "file")));
  }

  private StateInfo load(byte[] state, StateParams params, Path file) {
    MemorySegment address = core.enter();
    try (Call c = new Call()) {
      MemorySegment data = state == null ? MemorySegment.NULL : c.bytes(state);
      MemorySegment info = c.struct(Struct.STATE_INFO);
      MemorySegment p = params.write(c, file);
      c.check(Native.stateLoad(address, data, data.byteSize(), p, info, c.error));
      Struct s = Struct.STATE_INFO;
      return new StateInfo(
          info.get(JAVA_INT, s.at("shared")) != 0,
          info.get(JAVA_LONG, s.at("n_tokens")),
          info.get(JAVA_LONG, s.at("pages")),
          info.get(JAVA_LONG, s.at("pages_added")));
    } finally {
      core.exit();
    }
  }

  /**
   * The descriptor of the completion queue, readable while it holds news that the poller has not
   * taken yet: for watching, not for reading.
   *
   * @return the descriptor
   */
  public int queueDescriptor() {
    core.enter();
    try {
      return poller.descriptor();
    } finally {
      core.exit();
    }
  }

  /** Gives up this handle. A second time it does nothing. */
  @Override
  public void close() {
    cleanable.clean();
  }
}
