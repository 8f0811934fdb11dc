package io.orlop;

import java.time.Duration;
import java.util.List;
import java.util.Map;

/**
 * What a request asks for. Immutable; made by a {@link #builder()}. A value that is not set is the
 * model's (its generation_config), else the engine's default.
 */
public final class GenerateParams {
  /** Log probabilities: none. */
  public static final int OFF = -2;

  /** Log probabilities: of the whole vocabulary. */
  public static final int ALL = -1;

  static final double UNSET = -1.0e300;
  static final int FLAG_SEEDED = 2;

  final Builder is;

  private GenerateParams(Builder values) {
    is = values;
  }

  /**
   * Begins with nothing set.
   *
   * @return a builder
   */
  public static Builder builder() {
    return new Builder();
  }

  /**
   * Parameters with a text prompt.
   *
   * @param text the prompt
   * @return a builder
   */
  public static Builder text(String text) {
    return new Builder().text(text);
  }

  /**
   * Parameters with a prompt of token ids.
   *
   * @param tokens the prompt
   * @return a builder
   */
  public static Builder tokens(int... tokens) {
    return new Builder().tokens(tokens);
  }

  /**
   * Parameters with chat messages.
   *
   * @param messages the conversation
   * @return a builder
   */
  public static Builder messages(List<Message> messages) {
    return new Builder().messages(messages);
  }

  /**
   * A builder that begins with these parameters.
   *
   * @return a builder
   */
  public Builder toBuilder() {
    return new Builder(is);
  }

  /** Collects parameters. Of text, tokens and messages exactly one is set. */
  public static final class Builder {
    String text = null;
    int[] tokens = null;
    String messages = null;
    int maxTokens = -1;
    int minTokens = 0;
    double temperature = UNSET;
    double topP = UNSET;
    double minP = UNSET;
    int topK = Integer.MIN_VALUE;
    int n = 1;
    double repetitionPenalty = UNSET;
    double presencePenalty = 0;
    double frequencyPenalty = 0;
    Map<Integer, Float> logitBias = Map.of();
    List<String> stop = List.of();
    int[] stopTokens = {};
    int logprobs = OFF;
    int promptLogprobs = OFF;
    String cacheSalt = null;
    Duration deadline = Duration.ZERO;
    int priority = 0;
    Guide guide = Guide.NONE;
    Embedding embedding = Embedding.NONE;
    int flags;
    long seed;

    private Builder() {}

    private Builder(Builder b) {
      text = b.text;
      tokens = b.tokens;
      messages = b.messages;
      maxTokens = b.maxTokens;
      minTokens = b.minTokens;
      temperature = b.temperature;
      topP = b.topP;
      minP = b.minP;
      topK = b.topK;
      n = b.n;
      repetitionPenalty = b.repetitionPenalty;
      presencePenalty = b.presencePenalty;
      frequencyPenalty = b.frequencyPenalty;
      logitBias = b.logitBias;
      stop = b.stop;
      stopTokens = b.stopTokens;
      logprobs = b.logprobs;
      promptLogprobs = b.promptLogprobs;
      cacheSalt = b.cacheSalt;
      deadline = b.deadline;
      priority = b.priority;
      guide = b.guide;
      embedding = b.embedding;
      flags = b.flags;
      seed = b.seed;
    }

    /**
     * The prompt as text.
     *
     * @param text the value
     * @return this
     */
    public Builder text(String text) {
      this.text = text;
      return this;
    }

    /**
     * The prompt as token ids.
     *
     * @param tokens the value
     * @return this
     */
    public Builder tokens(int... tokens) {
      this.tokens = tokens.clone();
      return this;
    }

    /**
     * The prompt as chat messages: a JSON array of {role, content}, or an object with messages,
     * tools and variables for the template.
     *
     * @param messages the value
     * @return this
     */
    public Builder messages(String messages) {
      this.messages = messages;
      return this;
    }

    /**
     * The prompt as chat messages.
     *
     * @param messages the value
     * @return this
     */
    public Builder messages(List<Message> messages) {
      return messages(Message.json(messages));
    }

    /**
     * 0: compute the prompt only; unset: until the context is full.
     *
     * @param maxTokens the value
     * @return this
     */
    public Builder maxTokens(int maxTokens) {
      this.maxTokens = notNegative("maxTokens", maxTokens);
      return this;
    }

    /**
     * End-of-turn and stops are held off before this many tokens.
     *
     * @param minTokens the value
     * @return this
     */
    public Builder minTokens(int minTokens) {
      this.minTokens = notNegative("minTokens", minTokens);
      return this;
    }

    /**
     * 0: greedy.
     *
     * @param temperature the value
     * @return this
     */
    public Builder temperature(double temperature) {
      this.temperature = temperature;
      return this;
    }

    /**
     * 0 to 1; 1: off, 0: the best token only.
     *
     * @param topP the value
     * @return this
     */
    public Builder topP(double topP) {
      this.topP = topP;
      return this;
    }

    /**
     * 0: off.
     *
     * @param minP the value
     * @return this
     */
    public Builder minP(double minP) {
      this.minP = minP;
      return this;
    }

    /**
     * 0: off.
     *
     * @param topK the value
     * @return this
     */
    public Builder topK(int topK) {
      this.topK = topK;
      return this;
    }

    /**
     * Samples of the prompt, 1 to 128: sample i is drawn with seed + i.
     *
     * @param n the value
     * @return this
     */
    public Builder n(int n) {
      this.n = notNegative("n", n);
      return this;
    }

    /**
     * Above 0; 1: off; over prompt and output.
     *
     * @param repetitionPenalty the value
     * @return this
     */
    public Builder repetitionPenalty(double repetitionPenalty) {
      this.repetitionPenalty = repetitionPenalty;
      return this;
    }

    /**
     * -2 to 2; over the output.
     *
     * @param presencePenalty the value
     * @return this
     */
    public Builder presencePenalty(double presencePenalty) {
      this.presencePenalty = presencePenalty;
      return this;
    }

    /**
     * -2 to 2; over the output.
     *
     * @param frequencyPenalty the value
     * @return this
     */
    public Builder frequencyPenalty(double frequencyPenalty) {
      this.frequencyPenalty = frequencyPenalty;
      return this;
    }

    /**
     * Added to the raw logits of tokens; negative infinity forbids one.
     *
     * @param logitBias the value
     * @return this
     */
    public Builder logitBias(Map<Integer, Float> logitBias) {
      this.logitBias = Map.copyOf(logitBias);
      return this;
    }

    /**
     * Texts that end the output and are no part of it.
     *
     * @param stop the value
     * @return this
     */
    public Builder stop(String... stop) {
      this.stop = List.of(stop);
      return this;
    }

    /**
     * Token ids that end the output.
     *
     * @param stopTokens the value
     * @return this
     */
    public Builder stopTokens(int... stopTokens) {
      this.stopTokens = stopTokens.clone();
      return this;
    }

    /**
     * 0: of each chosen token, N: and the N best, {@link #ALL}: of the whole vocabulary, {@link
     * #OFF} (the default): none.
     *
     * @param logprobs the value
     * @return this
     */
    public Builder logprobs(int logprobs) {
      this.logprobs = logprobs;
      return this;
    }

    /**
     * The same for prompt tokens, each given those before it.
     *
     * @param promptLogprobs the value
     * @return this
     */
    public Builder promptLogprobs(int promptLogprobs) {
      this.promptLogprobs = promptLogprobs;
      return this;
    }

    /**
     * Requests share cached prefixes within equal salts only.
     *
     * @param cacheSalt the value
     * @return this
     */
    public Builder cacheSalt(String cacheSalt) {
      this.cacheSalt = cacheSalt;
      return this;
    }

    /**
     * From submission; then the request ends with a DeadlineException; zero: none.
     *
     * @param deadline the value
     * @return this
     */
    public Builder deadline(Duration deadline) {
      this.deadline = java.util.Objects.requireNonNull(deadline, "deadline");
      return this;
    }

    /**
     * -100 to 100: higher goes first; waiting raises it.
     *
     * @param priority the value
     * @return this
     */
    public Builder priority(int priority) {
      this.priority = priority;
      return this;
    }

    /**
     * What the output must be.
     *
     * @param guide the value
     * @return this
     */
    public Builder guide(Guide guide) {
      this.guide = java.util.Objects.requireNonNull(guide, "guide");
      return this;
    }

    /**
     * The prompt's pooled hidden states instead of text.
     *
     * @param embedding the value
     * @return this
     */
    public Builder embedding(Embedding embedding) {
      this.embedding = java.util.Objects.requireNonNull(embedding, "embedding");
      return this;
    }

    /**
     * Any 64-bit number: the same seed, the same output. Unset: the engine draws one and reports
     * it.
     *
     * @param seed the value
     * @return this
     */
    public Builder seed(long seed) {
      this.seed = seed;
      return flag(FLAG_SEEDED, true);
    }

    /**
     * End-of-turn tokens do not stop.
     *
     * @param ignoreEos the value
     * @return this
     */
    public Builder ignoreEos(boolean ignoreEos) {
      return flag(1, ignoreEos);
    }

    /**
     * Of a text prompt: the model's BOS token is not added.
     *
     * @param noBos the value
     * @return this
     */
    public Builder noBos(boolean noBos) {
      return flag(4, noBos);
    }

    /**
     * Of a text prompt: control tokens in the text are plain text.
     *
     * @param plain the value
     * @return this
     */
    public Builder plain(boolean plain) {
      return flag(8, plain);
    }

    /**
     * The output text shows control tokens.
     *
     * @param keepSpecial the value
     * @return this
     */
    public Builder keepSpecial(boolean keepSpecial) {
      return flag(16, keepSpecial);
    }

    private Builder flag(int bit, boolean on) {
      flags = on ? flags | bit : flags & ~bit;
      return this;
    }

    /** A negative count would read as a huge one: the field has no sign. */
    private static int notNegative(String name, int value) {
      if (value < 0) throw new InvalidArgumentException(name + ": must be 0 or more, got " + value);
      return value;
    }

    /**
     * Ends the building. Values are checked when the request is submitted.
     *
     * @return the parameters
     */
    public GenerateParams build() {
      return new GenerateParams(new Builder(this));
    }
  }
}
