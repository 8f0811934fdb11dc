package io.orlop;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_FLOAT;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.MemorySegment;
import java.nio.charset.StandardCharsets;

/** Copies an orlop_output, whose pointers die with the next get. */
final class OutputReader {
  private OutputReader() {}

  private static final Struct S = Struct.OUTPUT;
  private static final long FINISH = S.at("finish_reason");
  private static final long INDEX = S.at("index");
  private static final long ERROR_CODE = S.at("error_code");
  private static final long TEXT = S.at("text");
  private static final long TOKENS = S.at("tokens");
  private static final long N_TOKENS = S.at("n_tokens");
  private static final long LOGPROBS = S.at("logprobs");
  private static final long TOP = S.at("top_logprobs");
  private static final long N_TOP = S.at("n_top");
  private static final long PROMPT = S.at("prompt_logprobs");
  private static final long PROMPT_TOP = S.at("prompt_top_logprobs");
  private static final long N_PROMPT = S.at("n_prompt");
  private static final long N_PROMPT_TOP = S.at("n_prompt_top");
  private static final long MESSAGE = S.at("message");
  private static final long STOP_TOKEN = S.at("stop_token");
  private static final long STOP_INDEX = S.at("stop_index");
  private static final long EMBEDDING = S.at("embedding");
  private static final int[] NO_INTS = {};

  static Output read(MemorySegment o) {
    int finish = o.get(JAVA_INT, FINISH);
    long n = o.get(JAVA_LONG, N_TOKENS);
    long prompt = o.get(JAVA_LONG, N_PROMPT);
    return new Output(
        o.get(JAVA_INT, INDEX),
        text(o, TEXT),
        n == 0 ? NO_INTS : Call.view(o.get(ADDRESS, TOKENS), 4 * n).toArray(JAVA_INT),
        FinishReason.of(finish),
        floats(o, LOGPROBS, n),
        table(o, TOP, n, o.get(JAVA_LONG, N_TOP)),
        floats(o, PROMPT, prompt),
        table(o, PROMPT_TOP, prompt, o.get(JAVA_LONG, N_PROMPT_TOP)),
        floats(o, EMBEDDING, o.get(JAVA_LONG, EMBEDDING + 8)),
        o.get(JAVA_INT, STOP_TOKEN),
        o.get(JAVA_INT, STOP_INDEX),
        finish == FinishReason.ERROR.ordinal()
            ? OrlopException.of(o.get(JAVA_INT, ERROR_CODE), text(o, MESSAGE))
            : null);
  }

  private static String text(MemorySegment o, long offset) {
    long n = o.get(JAVA_LONG, offset + 8);
    if (n == 0) return "";
    byte[] bytes = Call.view(o.get(ADDRESS, offset), n).toArray(JAVA_BYTE);
    return new String(bytes, StandardCharsets.UTF_8);
  }

  private static float[] floats(MemorySegment o, long offset, long n) {
    MemorySegment p = o.get(ADDRESS, offset);
    return p.address() == 0 ? null : Call.view(p, 4 * n).toArray(JAVA_FLOAT);
  }

  /** orlop_logprob is a pair of an int32 and a float. */
  private static LogprobTable table(MemorySegment o, long offset, long rows, long columns) {
    MemorySegment p = o.get(ADDRESS, offset);
    if (p.address() == 0) return null;
    int n = Math.toIntExact(Math.multiplyExact(rows, columns));
    MemorySegment pairs = Call.view(p, 8L * n);
    int[] tokens = new int[n];
    float[] logprobs = new float[n];
    for (int i = 0; i < n; i++) {
      tokens[i] = pairs.getAtIndex(JAVA_INT, 2L * i);
      logprobs[i] = pairs.getAtIndex(JAVA_FLOAT, 2L * i + 1);
    }
    return new LogprobTable((int) rows, (int) columns, tokens, logprobs);
  }
}
