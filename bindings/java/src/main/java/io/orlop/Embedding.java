package io.orlop;

/** How the prompt's hidden states are pooled, instead of generating text. */
public enum Embedding {
  /** Text is generated. */
  NONE,
  /** The mean over the prompt's tokens. */
  MEAN,
  /** Of the prompt's last token. */
  LAST
}
