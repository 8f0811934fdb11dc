package io.orlop;

/** A piece of what a chat model wrote, see {@link ChatOutput}. */
public sealed interface ChatEvent {
  /**
   * A piece of the answer.
   *
   * @param text the piece
   */
  record Content(String text) implements ChatEvent {}

  /**
   * A piece of the reasoning before it.
   *
   * @param text the piece
   */
  record Reasoning(String text) implements ChatEvent {}

  /**
   * A tool call begins.
   *
   * @param index which call, from 0
   * @param name the tool
   */
  record ToolCall(int index, String name) implements ChatEvent {}

  /**
   * A piece of a call's arguments; the pieces of one call, joined, are JSON.
   *
   * @param index which call
   * @param text the piece
   */
  record ToolArguments(int index, String text) implements ChatEvent {}
}
